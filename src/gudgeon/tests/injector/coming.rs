//! The migration pages for users of Istio: their examples as printed, and their tables of flags.
//!
//! `GUDGEON_WRITE_TABLE=1 cargo test -p gudgeon --test injector coming` writes the tables after a change of flags.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const PAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/kubernetes");

struct Page {
    name: &'static str,
    /// The number of command lines on the page.
    examples: usize,
    /// The commands whose flags it lists, each with the beginning of one row.
    tables: [(&'static str, &'static str); 2],
}

const ALL: [Page; 2] = [
    Page {
        name: "coming-from-istio.md",
        examples: 6,
        tables: [
            ("injector", "\n| `--selfSigned[=<BOOL>]` | Generate"),
            ("inject", "\n| `-f, --filename <FILE>` | Manifests"),
        ],
    },
    Page {
        name: "coming-from-galley.md",
        examples: 2,
        tables: [
            ("galley", "\n| `--configPath <PATH>` | Configuration"),
            ("validate", "\n| `-n, --namespace <NAMESPACE>` | Namespace"),
        ],
    },
];

/// Returns the fenced blocks: the info string, and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (info, after) = after.split_once('\n').unwrap();
        let (text, after) = after.split_once("\n```").unwrap();
        found.push((info, text));
        rest = after;
    }
    found
}

#[test]
fn the_examples_work_as_they_stand_there() {
    for page in ALL {
        assert_eq!(examples(page.name), page.examples, "{}", page.name);
    }
}

/// Runs the examples of a page; returns their number.
fn examples(page: &str) -> usize {
    let page = fs::read_to_string(format!("{PAGES}/{page}")).unwrap();
    let root = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_gudgeon"), root.path().join("gudgeon")).unwrap();
    let path = format!("{}:/usr/bin:/bin", root.path().display());
    let mut ran = 0;
    for (info, text) in blocks(&page) {
        if let Some(name) = info.strip_prefix("yaml ") {
            fs::write(root.path().join(name), format!("{text}\n")).unwrap();
        }
        if info != "console" {
            continue;
        }
        for session in format!("\n{text}").split("\n$ ").skip(1) {
            let (command, wanted) = session.split_once('\n').unwrap_or((session, ""));
            let output = Command::new("/bin/sh")
                .args(["-c", &format!("{{ {command}; }} 2>&1")])
                .env("PATH", &path)
                .current_dir(root.path())
                .output()
                .unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            assert_eq!(stdout.trim_end(), wanted.trim_end(), "{command}");
            assert!(output.status.success(), "{command}");
            ran += 1;
        }
    }
    ran
}

/// Returns the original program of a command, and the arguments for its help: users know the flags in its spelling.
fn original(command: &str) -> (&'static str, &'static [&'static str]) {
    match command {
        "injector" => ("sidecar-injector", &["--help"]),
        "inject" => ("istioctl", &["kube-inject", "--help"]),
        "galley" => ("galley", &["--help"]),
        "validate" => ("istioctl", &["validate", "--help"]),
        other => panic!("{other}"),
    }
}

/// Renders a command's flags as rows, from its own help, group by group: short texts are on the flags' line in the help,
/// long ones below it.
fn table(command: &str) -> String {
    let (name, arguments) = original(command);
    let output = Command::new(env!("CARGO_BIN_EXE_gudgeon"))
        .arg0(name)
        .args(arguments)
        .output()
        .unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, options) = help.split_once("\nOptions:\n").unwrap();
    let mut rows = String::from("| flag | |\n|---|---|\n");
    let mut flag = "";
    let is_of_flags = |line: &&str| !matches!(*line, "Examples:" | "Exit codes:");
    for line in options.lines().take_while(is_of_flags) {
        if let Some(group) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            writeln!(rows, "| **{group}** | |").unwrap();
            continue;
        }
        let mut text = line.trim();
        if text.starts_with('-') {
            (flag, text) = text.split_once("  ").unwrap_or((text, ""));
        }
        let text = text.trim().replace('|', "\\|");
        if !text.is_empty() {
            writeln!(rows, "| `{flag}` | {text} |").unwrap();
        }
    }
    rows
}

#[test]
fn the_table_of_flags_is_what_help_says() {
    for Page { name, tables, .. } in ALL {
        let path = format!("{PAGES}/{name}");
        let written = fs::read_to_string(&path).unwrap();
        let mut page = written.clone();
        for (command, known) in tables {
            let table = table(command);
            assert!(table.contains(known), "{command}: {table}");
            let begin = format!("<!-- {command} -->\n");
            let (before, after) = page.split_once(&begin).unwrap();
            let (_, after) = after.split_once("<!-- end -->").unwrap();
            page = format!("{before}{begin}{table}<!-- end -->{after}");
        }
        if std::env::var_os("GUDGEON_WRITE_TABLE").is_some() {
            fs::write(&path, &page).unwrap();
        }
        assert!(
            fs::read_to_string(&path).unwrap() == page,
            "the table of flags of {name} is not what --help says: GUDGEON_WRITE_TABLE=1 writes it"
        );
    }
}
