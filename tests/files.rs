//! What the agent reads: documents, whose size and shape are somebody else's, and what is watched.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::support::{Agent, Setup, until};

/// The largest document, in bytes.
const DOCUMENT_BYTES: usize = 4 << 20;

/// A proxy that does nothing.
fn sleeper(directory: &Path) -> PathBuf {
    let path = directory.join("sleeper");
    fs::write(&path, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// An agent that has started its first epoch.
fn with_template(document: &str) -> Agent {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&sleeper(directory.path()));
    setup.write("template.json", document);
    let template = setup.path("template.json");
    let agent = setup.arg("--template-file").arg(template).start();
    agent.wait_log("epoch 0 started");
    agent
}

/// Ends it without the patience that the sleeper needs.
fn end(mut agent: Agent) {
    for _ in 0..3 {
        agent.signal(libc::SIGTERM);
    }
    agent.wait();
}

/// What the agent has used, in ticks of 10 ms.
fn cpu_ticks(agent: &Agent) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", agent.child.id())).unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks.map(|field| field.parse::<u64>().unwrap()).sum()
}

/// An object of `bytes` with as many entries as fit, in no order.
fn unsorted(bytes: usize, value: &str) -> String {
    let mut text = String::from("{");
    let mut key = 1_u64;
    while text.len() + value.len() + 30 < bytes {
        key = key
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text += &format!("\"{:x}\":{value},", key >> 20);
    }
    text + "\"last\":0}"
}

/// A sorted object is freed in another order than it was read in, which is what makes holes in a heap.
#[test]
fn the_time_for_a_document_grows_with_its_size_and_not_with_the_square() {
    const POLICY: &str =
        r#"{"permissions":[{"any":true}],"principals":[{"authenticated":{"name":"a"}}]}"#;
    const LARGE: usize = DOCUMENT_BYTES / 2;
    const TIMES: usize = 16;
    for value in [POLICY, "0"] {
        let used = |bytes| {
            let agent = with_template(&unsorted(bytes, value));
            let used = cpu_ticks(&agent);
            end(agent);
            used
        };
        let (small, large) = (used(LARGE / TIMES), used(LARGE));
        let most = (small + 1) * (TIMES as u64) * 4;
        assert!(
            large < most,
            "{small} and {large} ticks for {TIMES} times as much of {value}"
        );
    }
}

/// A million lists, each with a block of its own: eighty megabytes, which are given back.
#[test]
fn a_document_of_many_small_parts_is_survived() {
    let count = (DOCUMENT_BYTES - 20) / "[0],".len();
    let document = ["{\"a\":[", &vec!["[0]"; count].join(","), "]}"].concat();
    let agent = with_template(&document);
    until("the memory to be given back", || {
        (agent.memory("Private_Dirty:") < 4096).then_some(())
    });
    end(agent);
}

#[test]
fn a_document_above_the_bound_is_refused_by_name() {
    let setup = Setup::bare(Path::new("/bin/true"));
    setup.write("template.json", &unsorted(DOCUMENT_BYTES + 100, "0"));
    let template = setup.path("template.json");
    let mut agent = setup.arg("--template-file").arg(&template).start();
    assert_eq!(agent.wait().code(), Some(78), "{}", agent.log());
    let expected = format!(
        "cannot read template {}: larger than 4 MiB",
        template.display()
    );
    assert!(agent.log().contains(&expected), "{}", agent.log());
}
