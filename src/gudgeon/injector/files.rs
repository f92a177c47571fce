//! The files in use, each judged by itself: what is broken keeps its last good state and nothing else back.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use inject::{Parameters, Source, Sources};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::engine::Engine;
use super::metrics::Metrics;
use super::tracked::{Named, Tracked};
use crate::file;
use crate::tls::{self, Flaw, Pair};

/// A certificate and a key that do not match were seen half-way: tried again for so long.
pub(crate) const HALF_WAY: Duration = Duration::from_secs(10);
/// Between two such tries.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// What there is to read; an absent text is the built-in one.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) config: Option<Named>,
    pub(crate) values: Option<Named>,
    pub(crate) mesh: Option<Named>,
    /// Chain and key; `None`: made in memory.
    pub(crate) pair: Option<(Named, Named)>,
    /// `None`: nobody needs it.
    pub(crate) ca: Option<Named>,
    pub(crate) parameters: Parameters,
}

/// What requests and pages see of the files.
#[derive(Debug)]
pub(crate) struct Served<E> {
    engine: Mutex<Arc<E>>,
    report: Mutex<Vec<Value>>,
    /// The CA bundle for webhook configurations.
    pub(crate) ca: watch::Sender<Option<Arc<str>>>,
    /// How often it could not be read.
    pub(crate) ca_unreadable: watch::Sender<u64>,
}

impl<E> Served<E> {
    /// The configuration as it is now: who has it keeps it.
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
struct Text {
    source: Source,
    file: Tracked,
    good: Option<String>,
    /// Read, and not accepted yet.
    candidate: Option<String>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Files<E> {
    texts: Vec<Text>,
    pair: Option<(Tracked, Tracked)>,
    half_way_since: Option<Instant>,
    ca: Option<Tracked>,
    parameters: Parameters,
    metrics: Arc<Metrics>,
    served: Arc<Served<E>>,
    tls: Option<Arc<tls::Current>>,
    pub(crate) not_after: watch::Sender<Option<Pair>>,
}

impl<E: Engine> Files<E> {
    /// Reads and checks them all.
    ///
    /// # Errors
    /// The first that is missing or broken, in one line.
    pub(crate) async fn open(wanted: Wanted, metrics: Arc<Metrics>) -> Result<Self, String> {
        let named = [
            (Source::Config, wanted.config),
            (Source::Values, wanted.values),
            (Source::Mesh, wanted.mesh),
        ];
        let mut texts = Vec::new();
        for (source, named) in named {
            let Some(named) = named else { continue };
            let mut file = Tracked::new(named);
            let text = file.changed().unwrap_or_else(|| Err("not read".to_owned()));
            let text = text
                .and_then(utf8)
                .map_err(|cause| file.named.line(&cause))?;
            texts.push(Text {
                source,
                file,
                good: Some(text),
                candidate: None,
            });
        }
        let (engine, warnings) = load::<E>(&texts, None, &wanted.parameters).map_err(|broken| {
            let text = texts.iter().find(|text| text.source == broken.source);
            text.map_or_else(
                || format!("cannot use the built-in configuration: {}", broken.cause),
                |text| text.file.named.line(&broken.cause),
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
                .map(|(chain, key)| (Tracked::new(chain), Tracked::new(key))),
            half_way_since: None,
            ca: wanted.ca.map(Tracked::new),
            parameters: wanted.parameters,
            metrics,
            served: Arc::new(served),
            tls: None,
            not_after: watch::Sender::new(None),
        };
        let now = SystemTime::now();
        for text in &mut this.texts {
            text.file.good(&this.metrics, now);
        }
        this.first_pair().await?;
        this.look_at_ca(now);
        if let Some((ca, cause)) = this
            .ca
            .as_ref()
            .and_then(|ca| Some((ca, ca.error.as_ref()?)))
        {
            return Err(ca.named.line(cause));
        }
        this.publish();
        Ok(this)
    }

    async fn first_pair(&mut self) -> Result<(), String> {
        while let Some(pause) = self.look_at_pair(SystemTime::now()) {
            tokio::time::sleep(pause).await;
        }
        let Some((chain, key)) = &self.pair else {
            return Ok(());
        };
        for file in [chain, key] {
            if let Some(cause) = &file.error {
                return Err(file.named.line(cause));
            }
        }
        Ok(())
    }

    pub(crate) fn served(&self) -> Arc<Served<E>> {
        Arc::clone(&self.served)
    }

    /// The certificate of new connections; `None`: none is read from files.
    pub(crate) fn tls(&self) -> Option<Arc<tls::Current>> {
        self.tls.clone()
    }

    /// What to watch.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let texts = self.texts.iter().map(|text| &text.file);
        let pair = self.pair.iter().flat_map(|(chain, key)| [chain, key]);
        texts
            .chain(pair)
            .chain(&self.ca)
            .map(|file| file.named.path.clone())
            .collect()
    }

    /// Reads what has changed; when to look again, where something was seen half-way.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        let now = SystemTime::now();
        self.look_at_texts(now);
        let again = self.look_at_pair(now);
        self.look_at_ca(now);
        self.publish();
        again
    }

    fn publish(&self) {
        let texts = self.texts.iter().map(|text| &text.file);
        let pair = self.pair.iter().flat_map(|(chain, key)| [chain, key]);
        let report = texts.chain(pair).chain(&self.ca).map(Tracked::json);
        *self
            .served
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = report.collect();
    }

    fn look_at_texts(&mut self, now: SystemTime) {
        let mut fresh = vec![false; self.texts.len()];
        for (text, fresh) in self.texts.iter_mut().zip(&mut fresh) {
            match text.file.changed().map(|read| read.and_then(utf8)) {
                None => {}
                Some(Ok(candidate)) => {
                    text.candidate = Some(candidate);
                    *fresh = true;
                }
                Some(Err(cause)) => {
                    text.candidate = None;
                    text.file.broken(&self.metrics, &cause);
                }
            }
        }
        if !fresh.contains(&true) {
            return;
        }
        // One may only be right once another was taken, so until none is taken any more.
        let mut causes: Vec<Option<String>> = vec![None; self.texts.len()];
        let mut taken = true;
        while taken {
            taken = false;
            for (at, cause) in causes.iter_mut().enumerate() {
                let waits = |text: &Text| text.candidate.is_some();
                if !self.texts.get(at).is_some_and(waits) {
                    continue;
                }
                match load::<E>(&self.texts, Some(at), &self.parameters) {
                    Ok((engine, warnings)) => {
                        log_warnings(&warnings);
                        let engine = Arc::new(engine);
                        *self
                            .served
                            .engine
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner) = engine;
                        if let Some(text) = self.texts.get_mut(at) {
                            text.good = text.candidate.take();
                            text.file.good(&self.metrics, now);
                        }
                        *cause = None;
                        taken = true;
                    }
                    Err(broken) => *cause = Some(broken.cause),
                }
            }
        }
        for ((text, cause), fresh) in self.texts.iter_mut().zip(causes).zip(fresh) {
            if let Some(cause) = cause.filter(|_| fresh) {
                text.file.broken(&self.metrics, &cause);
            }
        }
    }

    fn look_at_pair(&mut self, now: SystemTime) -> Option<Duration> {
        let (chain, key) = self.pair.as_mut()?;
        let before = (chain.seen.clone(), key.seen.clone());
        let (bytes_of_chain, bytes_of_key) = (chain.changed(), key.changed());
        let fresh = bytes_of_chain.is_some() || bytes_of_key.is_some();
        if fresh && before != (None, None) {
            self.half_way_since = None;
        }
        if !fresh && self.half_way_since.is_none() {
            return None;
        }
        let mut bytes = [Vec::new(), Vec::new()];
        let mut readable = true;
        for (file, bytes) in [&mut *chain, &mut *key].into_iter().zip(&mut bytes) {
            match file::read(&file.named.path) {
                Ok(read) => *bytes = read,
                Err(cause) => {
                    file.broken(&self.metrics, &cause.to_string());
                    readable = false;
                }
            }
        }
        if !readable {
            return None;
        }
        let [bytes_of_chain, bytes_of_key] = &bytes;
        match Pair::parse(bytes_of_chain, bytes_of_key) {
            Ok(pair) => {
                self.half_way_since = None;
                chain.good(&self.metrics, now);
                key.good(&self.metrics, now);
                self.metrics.serves_until(pair.not_after);
                match &self.tls {
                    Some(tls) => tls.set(&pair),
                    None => self.tls = Some(tls::Current::new(&pair)),
                }
                self.not_after.send_replace(Some(pair));
            }
            Err(Flaw::Chain(cause)) => chain.broken(&self.metrics, &cause),
            Err(Flaw::Key(cause)) => key.broken(&self.metrics, &cause),
            Err(Flaw::Mismatch) => {
                let since = *self.half_way_since.get_or_insert_with(Instant::now);
                if since.elapsed() < HALF_WAY {
                    return Some(TRY_AGAIN);
                }
                self.half_way_since = None;
                let chain = chain.named.path.display();
                key.broken(
                    &self.metrics,
                    &format!("it does not belong to the certificate in {chain}"),
                );
            }
        }
        None
    }

    fn look_at_ca(&mut self, now: SystemTime) {
        let Some(ca) = &mut self.ca else { return };
        let read = match ca.changed() {
            None => return,
            Some(read) => read
                .and_then(utf8)
                .and_then(|pem| tls::is_bundle(pem.as_bytes()).map(|()| pem)),
        };
        match read {
            Ok(pem) => {
                ca.good(&self.metrics, now);
                self.served.ca.send_replace(Some(pem.into()));
            }
            Err(cause) => {
                ca.broken(&self.metrics, &cause);
                self.served.ca_unreadable.send_modify(|times| *times += 1);
            }
        }
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

/// Loads the good texts, but for one its candidate.
fn load<E: Engine>(
    texts: &[Text],
    candidate: Option<usize>,
    parameters: &Parameters,
) -> Result<(E, Vec<String>), inject::Broken> {
    let mut sources = Sources::default();
    for (at, text) in texts.iter().enumerate() {
        let chosen = if Some(at) == candidate {
            text.candidate.as_deref()
        } else {
            text.good.as_deref()
        };
        match text.source {
            Source::Config => sources.config = chosen,
            Source::Values => sources.values = chosen,
            Source::Mesh => sources.mesh = chosen,
        }
    }
    E::load(sources, parameters)
}

fn log_warnings(warnings: &[String]) {
    for warning in warnings {
        warn!("{warning}");
    }
}

#[cfg(test)]
mod tests;
