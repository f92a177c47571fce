//! The files in use, each validated by itself: an invalid one keeps its last good version, and does not affect the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use api::redact::redact_quoted;
use inject::{Parameters, SourceKind, Sources};
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

use super::engine::ActiveConfiguration;
use super::metrics::InjectorMetrics;
use crate::config_file::{AtStart, FlaggedFile, RETRY_INTERVAL, ReloadedFile};
use crate::tls::{self, BundleFile, BundleRead, Pair, PairFiles, utf8};
use crate::watch::ReloadFiles;

/// The files to read; an absent text is the built-in one.
#[derive(Debug, Default)]
pub(crate) struct WantedFiles {
    pub(crate) config: Option<FlaggedFile>,
    pub(crate) values: Option<FlaggedFile>,
    pub(crate) mesh: Option<FlaggedFile>,
    /// Chain and key; `None`: made in memory.
    pub(crate) pair: Option<(FlaggedFile, FlaggedFile)>,
    /// `None`: the bundle is not needed.
    pub(crate) ca: Option<FlaggedFile>,
    pub(crate) parameters: Parameters,
}

/// The state of the files, for requests and pages.
#[derive(Debug)]
pub(crate) struct Served<E> {
    engine: Mutex<Arc<E>>,
    report: Mutex<Vec<Value>>,
    /// The CA bundle for webhook configurations.
    pub(crate) ca: watch::Sender<Option<Arc<str>>>,
    /// Counts failures to read the bundle.
    pub(crate) ca_unreadable: watch::Sender<u64>,
}

impl<E> Served<E> {
    /// Returns the present configuration, which a caller keeps across a reload.
    pub(crate) fn engine(&self) -> Arc<E> {
        Arc::clone(&self.engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The files, for the page.
    pub(crate) fn report(&self) -> Vec<Value> {
        self.report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A text of the configuration.
#[derive(Debug)]
struct ConfigurationText {
    source: SourceKind,
    file: ReloadedFile,
    good: Option<String>,
    /// A text that was read, and is not accepted yet.
    candidate: Option<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    text: String,
    outcome: LoadOutcome,
}

/// The outcome of the last load of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadOutcome {
    /// The configuration was not loaded yet.
    Pending,
    /// Only a change of another text can make the candidate right.
    Refused,
    /// The panic may not come again: the candidate is loaded at every look.
    Panicked,
}

impl ConfigurationText {
    /// Reads a file, which must be there and in UTF-8.
    async fn open(source: SourceKind, flagged_file: FlaggedFile) -> Result<Self, String> {
        let mut file = ReloadedFile::new(flagged_file, AtStart::Optional);
        let read = file.changed().await;
        let text = read.unwrap_or_else(|| Err("not read".to_owned()));
        let text = text.and_then(utf8);
        let text = text.map_err(|cause| file.named().line(&cause))?;
        Ok(Self {
            source,
            file,
            good: Some(text),
            candidate: None,
        })
    }

    /// Returns true if the candidate is to be loaded though no other text has changed.
    fn is_due(&self) -> bool {
        self.candidate
            .as_ref()
            .is_some_and(|candidate| candidate.outcome != LoadOutcome::Refused)
    }
}

/// The cause of a file whose load panicked.
const PANICKED: &str =
    "internal error: its load panicked, see the log; it is loaded again at every look at the files";

/// All files of the injector.
#[derive(Debug)]
pub(crate) struct Files<E> {
    texts: Vec<ConfigurationText>,
    pair: Option<PairFiles>,
    ca: Option<BundleFile>,
    parameters: Parameters,
    metrics: Arc<InjectorMetrics>,
    served: Arc<Served<E>>,
}

impl<E: ActiveConfiguration> Files<E> {
    /// Reads and checks them all.
    ///
    /// # Errors
    /// The first that is missing or broken, in one line.
    pub(crate) async fn open(
        wanted: WantedFiles,
        metrics: Arc<InjectorMetrics>,
    ) -> Result<Self, String> {
        let flagged_files = [
            (SourceKind::Config, wanted.config),
            (SourceKind::Values, wanted.values),
            (SourceKind::Mesh, wanted.mesh),
        ];
        let mut texts = Vec::new();
        for (source, flagged_files) in flagged_files {
            if let Some(flagged_files) = flagged_files {
                texts.push(ConfigurationText::open(source, flagged_files).await?);
            }
        }
        let (engine, warnings) = load::<E>(&texts, None, &wanted.parameters).map_err(|broken| {
            let text = texts.iter().find(|text| text.source == broken.source);
            text.map_or_else(
                || format!("cannot use the built-in configuration: {}", broken.cause),
                |text| text.file.named().line(&broken.cause),
            )
        })?;
        log_warnings(&warnings);
        let served = Served {
            engine: Mutex::new(Arc::new(engine)),
            report: Mutex::default(),
            ca: watch::Sender::new(None),
            ca_unreadable: watch::Sender::new(0),
        };
        let mut this = Self {
            texts,
            pair: wanted
                .pair
                .map(|(chain, key)| PairFiles::new(chain, key, AtStart::Needed)),
            ca: wanted.ca.map(BundleFile::new),
            parameters: wanted.parameters,
            metrics,
            served: Arc::new(served),
        };
        let now = SystemTime::now();
        for text in &mut this.texts {
            text.file.good(&*this.metrics, now);
        }
        this.first_pair().await?;
        this.reload_ca(now).await;
        let of_ca = this.ca.as_ref().map(|ca| &ca.0);
        if let Some(line) = of_ca.and_then(ReloadedFile::error_line) {
            return Err(line);
        }
        this.publish();
        Ok(this)
    }

    async fn first_pair(&mut self) -> Result<(), String> {
        while let Some(pause) = self.reload_pair(SystemTime::now()).await {
            // One that hangs is not waited for: it is wrong.
            if self.all().any(ReloadedFile::hangs) {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        let error = self.pair.as_ref().and_then(PairFiles::error);
        error.map_or(Ok(()), Err)
    }

    pub(crate) fn served(&self) -> Arc<Served<E>> {
        Arc::clone(&self.served)
    }

    /// The certificate of new connections; `None`: none is read from files.
    pub(crate) fn tls(&self) -> Option<Arc<tls::Current>> {
        self.pair.as_ref().map(PairFiles::current)
    }

    /// The pair in use, and each that comes.
    pub(crate) fn pairs(&self) -> Option<watch::Receiver<Option<Pair>>> {
        self.pair.as_ref().map(|files| files.pair.subscribe())
    }

    fn all(&self) -> impl Iterator<Item = &ReloadedFile> {
        let texts = self.texts.iter().map(|text| &text.file);
        let pair = self.pair.iter().flat_map(PairFiles::files);
        texts
            .chain(pair)
            .chain(self.ca.iter().map(|bundle| &bundle.0))
    }

    /// The paths to watch.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.all().map(|file| file.named().path.clone()).collect()
    }

    fn publish(&self) {
        let report = self.all().map(ReloadedFile::json).collect();
        *self
            .served
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = report;
    }

    async fn reload_texts(&mut self, now: SystemTime) {
        self.read_texts().await;
        let due: Vec<bool> = self.texts.iter().map(ConfigurationText::is_due).collect();
        // Neither a candidate that was refused nor the texts in use have changed.
        if !due.contains(&true) {
            return;
        }
        let causes = self.accept_candidates(now);
        for ((text, cause), due) in self.texts.iter_mut().zip(causes).zip(due) {
            // The error of a candidate from an earlier look was reported then.
            if let Some(cause) = cause.filter(|_| due) {
                text.file.broken(&*self.metrics, &cause);
            }
        }
    }

    /// Reads the texts that have changed: each is a candidate.
    async fn read_texts(&mut self) {
        for text in &mut self.texts {
            match text.file.changed().await.map(|read| read.and_then(utf8)) {
                None => {}
                Some(Ok(changed)) => {
                    text.candidate = Some(Candidate {
                        text: changed,
                        outcome: LoadOutcome::Pending,
                    });
                }
                Some(Err(cause)) => {
                    text.candidate = None;
                    text.file.broken(&*self.metrics, &cause);
                }
            }
        }
    }

    /// Loads the candidates. Returns by text why it cannot be used.
    fn accept_candidates(&mut self, now: SystemTime) -> Vec<Option<String>> {
        // One may only be right once another was taken, so until none is taken any more.
        let mut causes: Vec<Option<String>> = vec![None; self.texts.len()];
        let mut accepted = true;
        while accepted {
            accepted = false;
            for (at, cause) in causes.iter_mut().enumerate() {
                let waits = |text: &ConfigurationText| text.candidate.is_some();
                if !self.texts.get(at).is_some_and(waits) {
                    continue;
                }
                *cause = self.accept(at, now).err();
                accepted |= cause.is_none();
            }
        }
        causes
    }

    /// Loads a candidate beside the other texts that are in use, and uses it.
    ///
    /// # Errors
    /// The candidate is not valid, or its load panicked: the last good text stays in use.
    fn accept(&mut self, at: usize, now: SystemTime) -> Result<(), String> {
        // The load changes nothing but its own result.
        let load = || load::<E>(&self.texts, Some(at), &self.parameters);
        let (outcome, loaded) = match catch_unwind(AssertUnwindSafe(load)) {
            Ok(loaded) => (LoadOutcome::Refused, loaded.map_err(|broken| broken.cause)),
            Err(_logged) => (LoadOutcome::Panicked, Err(PANICKED.to_owned())),
        };
        let Some(text) = self.texts.get_mut(at) else {
            return Ok(());
        };
        let (engine, warnings) = match loaded {
            Ok(loaded) => loaded,
            Err(cause) => {
                if let Some(candidate) = &mut text.candidate {
                    candidate.outcome = outcome;
                }
                return Err(cause);
            }
        };
        log_warnings(&warnings);
        let served = &self.served.engine;
        *served.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(engine);
        text.good = text.candidate.take().map(|candidate| candidate.text);
        text.file.good(&*self.metrics, now);
        Ok(())
    }

    async fn reload_pair(&mut self, now: SystemTime) -> Option<Duration> {
        self.pair.as_mut()?.reload(&*self.metrics, now).await
    }

    async fn reload_ca(&mut self, now: SystemTime) {
        let Some(ca) = &mut self.ca else { return };
        match ca.reload(&*self.metrics, now).await {
            BundleRead::Same => {}
            BundleRead::New(pem) => drop(self.served.ca.send_replace(Some(pem))),
            BundleRead::Broken => self.served.ca_unreadable.send_modify(|times| *times += 1),
        }
    }
}

impl<E: ActiveConfiguration> ReloadFiles for Files<E> {
    /// Returns the time of the next look, if files were inconsistent or did not answer.
    async fn reload(&mut self) -> Option<Duration> {
        let now = SystemTime::now();
        self.reload_texts(now).await;
        let again = self.reload_pair(now).await;
        self.reload_ca(now).await;
        self.publish();
        let hangs = self.all().any(ReloadedFile::hangs);
        again.or_else(|| hangs.then_some(RETRY_INTERVAL))
    }

    fn forget(&mut self) {
        for text in &mut self.texts {
            text.file.forget();
        }
        if let Some(pair) = &mut self.pair {
            pair.forget();
        }
        if let Some(bundle) = &mut self.ca {
            bundle.0.forget();
        }
    }
}

/// Loads the good texts, but for one its candidate.
fn load<E: ActiveConfiguration>(
    texts: &[ConfigurationText],
    candidate: Option<usize>,
    parameters: &Parameters,
) -> Result<(E, Vec<String>), inject::ConfigurationError> {
    let mut sources = Sources::default();
    for (at, text) in texts.iter().enumerate() {
        let chosen = if Some(at) == candidate {
            text.candidate.as_ref().map(|candidate| &*candidate.text)
        } else {
            text.good.as_deref()
        };
        match text.source {
            SourceKind::Config => sources.config = chosen,
            SourceKind::Values => sources.values = chosen,
            SourceKind::Mesh => sources.mesh = chosen,
        }
    }
    E::load(sources, parameters)
}

/// Logs warnings without their quotations: the output of a template may hold a value of the environment or of the values file.
fn log_warnings(warnings: &[String]) {
    for warning in warnings {
        warn!("{}", redact_quoted(warning));
    }
}

#[cfg(test)]
mod tests;
