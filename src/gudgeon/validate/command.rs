//! The command: reads every named file, reports the findings, and returns the exit code.

use std::path::Path;

use super::glob::Glob;
use super::report::Report;
use super::source_file::SourceFile;
use crate::analyze::analyze;
use crate::cli::ValidateFlags;
use crate::exit::{self, Exit, Failure};
use crate::named_files::{self, NamedFile};

/// The root namespace where no mesh says another.
const ROOT: &str = "istio-system";

/// Reads and validates the files, and prints the findings.
///
/// # Errors
/// An error in flags, or in the output; findings in manifests are no error but the result.
pub(crate) fn run(flags: &ValidateFlags) -> Result<Exit, Failure> {
    let arguments: Vec<String> = flags.files.iter().chain(&flags.more).cloned().collect();
    if arguments.is_empty() {
        return Err(Failure::usage("cannot validate: no manifest is named"));
    }
    if let Some(namespace) = &flags.namespace
        && !api::names::is_label(namespace)
    {
        let quoted = api::config::quoted(namespace);
        return Err(Failure::config(format!(
            "cannot use --namespace: {quoted} is not a DNS label"
        )));
    }
    let globs = flags.exclude.iter().map(|glob| Glob::read(glob));
    let globs: Vec<Glob> = globs.collect::<Result<_, _>>().map_err(Failure::usage)?;
    let is_excluded = |below: &Path| globs.iter().any(|glob| glob.has(below));
    let mut source_file = SourceFile::new(flags.namespace.as_deref(), Report::new(flags.output));
    let mut read = Vec::new();
    for found in named_files::named(&arguments, &is_excluded).map_err(Failure::usage)? {
        match found.and_then(|found| NamedFile::read(&found)) {
            Ok(file) => {
                source_file.read(&file);
                read.extend(flags.references.then_some(file));
            }
            Err(unread) => source_file.report.unread(&unread),
        }
    }
    let mut report = source_file.report;
    // What cannot be read has been reported already.
    for found in &analyze(&read, flags.namespace.as_deref(), (ROOT, None)).located {
        report.reference(found);
    }
    exit::print(report.answer().as_bytes()).map_err(|cause| Failure::stdout(&cause))?;
    Ok(match report.is_good() {
        true => Exit::Done,
        false => Exit::Failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ReportFormat;

    /// An invalid value is no usage error, as with `-o`.
    #[test]
    fn invalid_flags_and_missing_files_have_exit_codes() {
        let exit = |files: &[&str], namespace: Option<&str>| {
            let flags = ValidateFlags {
                files: files.iter().map(|file| (*file).to_owned()).collect(),
                more: Vec::new(),
                namespace: namespace.map(ToOwned::to_owned),
                output: ReportFormat::Text,
                exclude: Vec::new(),
                references: false,
            };
            run(&flags).map_err(|failure| failure.exit)
        };
        let empty = tempfile::tempdir().unwrap();
        let empty = empty.path().to_str().unwrap();
        assert_eq!(exit(&["/none"], Some("a_b")), Err(Exit::Config));
        assert_eq!(exit(&["/none"], Some("")), Err(Exit::Config));
        assert_eq!(exit(&[], Some("a")), Err(Exit::Usage));
        assert_eq!(exit(&[empty], Some("a")), Err(Exit::Usage));
        assert_eq!(exit(&["/none"], Some("a")), Ok(Exit::Failed));
    }
}
