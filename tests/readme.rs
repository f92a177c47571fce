//! The README's commands, as they stand there, one after another.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::support::{configuration, direct, envoy};

const README: &str = include_str!("../README.md");
/// The agent runs beside what follows, and its end is that of `pintle quit`.
const SCRIPT: &str = "set -e
mount -t tmpfs none /dev/shm
ip link set lo up
@AGENT > log 2>&1 &
agent=$!
@COMMANDS
wait $agent
";

/// What stands between the two, the first time.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{begin}"));
    rest.split_once(end).unwrap_or_else(|| panic!("{end}")).0
}

/// In a network of their own, for they use the ports that stand there: 15000 and 15020.
#[test]
fn the_commands_of_the_readme_work_one_after_another() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_pintle"), bin.join("pintle")).unwrap();
    symlink(envoy(), bin.join("envoy")).unwrap();
    let bootstrap = configuration(15000, 10000, direct("hello"), json!([]));
    write("envoy.json", &bootstrap.to_string());

    let block = between(README, "With a configuration of your own", "A change of");
    let agent = between(block, "```sh\n", "```").trim_end();
    assert!(agent.starts_with("pintle proxy router "), "{agent}");
    let agent = agent.replace("/usr/local/bin/envoy", "bin/envoy");
    let section = between(README, "### Commands\n", "\n### ");
    let commands: Vec<_> = between(section, "```text\n", "```")
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    for command in ["wait", "request", "status", "drain", "quit"] {
        let command = format!("pintle {command}");
        assert!(
            commands.iter().any(|line| line.starts_with(&command)),
            "{command} is not shown"
        );
    }
    let script = SCRIPT
        .replace("@AGENT", &agent)
        .replace("@COMMANDS", &commands.join("\n"));
    let (code, said) = run(directory.path(), &script);
    let log = fs::read_to_string(directory.path().join("log")).unwrap_or_default();
    assert_eq!(code, Some(0), "{said}\n--- log:\n{log}");
    assert!(said.contains("server.live: 1"), "{said}");
    assert!(log.contains("drain requested on the status port"), "{log}");
    assert!(
        log.contains("stopped on request (/quitquitquit), exit code 0"),
        "{log}"
    );
}

fn run(directory: &Path, script: &str) -> (Option<i32>, String) {
    let path = "bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let output = Command::new("/usr/bin/unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--mount-proc"])
        .args(["--kill-child", "--", "/bin/sh", "-exc", script])
        .current_dir(directory)
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code(), said)
}
