use super::*;
use crate::kubernetes::failure::Cause;
use crate::kubernetes::fake::{Fake, Fault};
use std::io::Write as _;

fn kubeconfig(text: &str) -> (tempfile::NamedTempFile, Access) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let access = Access::Kubeconfig {
        file: Some(file.path().to_path_buf()),
        context: None,
    };
    (file, access)
}

/// A kubeconfig of one cluster and one user, as flow mappings of YAML.
fn of_one(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

fn two_contexts(more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: here
clusters:
- {{name: here, cluster: {{server: 'http://127.0.0.1:1'{more}}}}}
- {{name: there, cluster: {{server: 'http://127.0.0.1:2'}}}}
users: [{{name: me, user: {{token: secret-token}}}}]
contexts:
- {{name: here, context: {{cluster: here, user: me}}}}
- {{name: there, context: {{cluster: there, user: me}}}}
"
    )
}

#[tokio::test]
async fn a_kubeconfig_names_the_server() {
    let (_file, access) = kubeconfig(&two_contexts(""));
    let cluster = Cluster::open(&access).await.unwrap();
    assert_eq!(cluster.address(), "http://127.0.0.1:1/");
    assert_eq!(format!("{cluster:?}"), "Cluster(\"http://127.0.0.1:1/\")");
    let Access::Kubeconfig { file, .. } = access else {
        panic!("it is one");
    };
    let there = Access::Kubeconfig {
        file,
        context: Some("there".to_owned()),
    };
    let cluster = Cluster::open(&there).await.unwrap();
    assert_eq!(cluster.address(), "http://127.0.0.1:2/");
}

#[tokio::test]
async fn a_password_in_an_address_is_not_shown() {
    let text = two_contexts("").replace("http://127.0.0.1:1", "http://me:S3CRET@127.0.0.1:1");
    let (_file, access) = kubeconfig(&text);
    let cluster = Cluster::open(&access).await.unwrap();
    assert_eq!(cluster.address(), "http://127.0.0.1:1/");
    let text = text.replace("@127.0.0.1:1'", "@127.0.0.1:1', proxy-url: 'http://p'");
    let (_file, access) = kubeconfig(&text);
    let error = Cluster::open(&access).await.unwrap_err();
    assert!(!format!("{error}{error:?}").contains("S3CRET"), "{error}");
}

#[tokio::test]
async fn a_kubeconfig_that_is_none_says_so() {
    let long = format!("# {}\n", "x".repeat(1 << 20));
    for (text, part) in [
        ("{", "cannot use the kubeconfig "),
        (
            "apiVersion: v1\nkind: Config\n",
            "cannot use the kubeconfig ",
        ),
        (
            &two_contexts(", proxy-url: 'http://127.0.0.1:3'"),
            "proxy-url",
        ),
        (
            &two_contexts(", certificate-authority: /absent/ca.pem"),
            "/absent/ca.pem",
        ),
        (&long, "larger than 1048576 bytes"),
    ] {
        let (_file, access) = kubeconfig(text);
        let error = Cluster::open(&access).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(
            !error.contains("secret-token") && !error.contains('\n'),
            "{error}"
        );
    }
    let absent = Access::Kubeconfig {
        file: Some("/absent/kubeconfig".into()),
        context: None,
    };
    let error = Cluster::open(&absent).await.unwrap_err().to_string();
    assert!(
        error.starts_with("cannot use the kubeconfig /absent/kubeconfig: "),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_found_out_later() {
    let (_file, access) = kubeconfig(&two_contexts(""));
    let cluster = Cluster::open(&access).await.unwrap();
    let failure = cluster.version().await.unwrap_err();
    let message = failure.to_string();
    assert!(message.starts_with("cannot get /version: "), "{message}");
    assert!(message.contains("refused"), "{message}");
    assert!(matches!(failure.cause, Cause::Broken(_)));
}

#[tokio::test]
async fn it_says_which_kubernetes_it_is() {
    let fake = Fake::start().await;
    let says = |text| fake.fail("get", &[Fault::Says(text)]);
    says(r#"{"major":"1","minor":"32","gitVersion":"v1.32.0"}"#);
    let (old, new) = (
        Version {
            major: 1,
            minor: 20,
        },
        Version {
            major: 1,
            minor: 32,
        },
    );
    assert_eq!(fake.cluster().version().await.unwrap(), new);
    says(r#"{"major":"1","minor":"20+"}"#);
    assert_eq!(fake.cluster().version().await.unwrap(), old);
    assert!(old < new && new < Version { major: 2, minor: 0 });
    says(r#"{"major":"","minor":"x"}"#);
    let failure = fake.cluster().version().await.unwrap_err();
    assert!(matches!(failure.cause, Cause::Malformed(_)));
}

#[tokio::test]
async fn a_config_map_is_read() {
    let fake = Fake::start().await;
    fake.fail(
        "get",
        &[
            Fault::Says(r#"{"metadata":{"name":"c"},"data":{"config":"policy: enabled\n"}}"#),
            Fault::Says(r#"{"metadata":{"name":"c"}}"#),
            Fault::Status(404, 0),
        ],
    );
    let cluster = fake.cluster();
    let data = cluster.config_map("istio-system", "c").await.unwrap();
    assert_eq!(data["config"], "policy: enabled\n");
    assert_eq!(
        fake.paths(),
        ["/api/v1/namespaces/istio-system/configmaps/c"]
    );
    let data = cluster.config_map("istio-system", "c").await.unwrap();
    assert!(data.is_empty());
    let failure = cluster.config_map("istio-system", "c").await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "cannot get configmaps istio-system/c: the fake says 404 (404)"
    );
}

#[tokio::test]
async fn a_foreign_kubeconfig_reaches_nothing_of_this_machine() {
    let of =
        |cluster: &str, user: &str| of_one(&format!("server: 'http://127.0.0.1:1'{cluster}"), user);
    assert!(
        Cluster::of_kubeconfig(of("", "token: t").as_bytes())
            .await
            .is_ok()
    );
    for (cluster, user, part) in [
        ("", "exec: {command: touch}", "exec"),
        (
            "",
            "auth-provider: {name: gcp, config: {}}",
            "auth-provider",
        ),
        ("", "tokenFile: /etc/passwd", "tokenFile"),
        ("", "client-certificate: /a", "client-certificate"),
        ("", "client-key: /a", "client-key"),
        (
            ", certificate-authority: /a",
            "token: t",
            "certificate-authority",
        ),
    ] {
        let refused = Cluster::of_kubeconfig(of(cluster, user).as_bytes())
            .await
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("cannot use the kubeconfig: {part} is not allowed here")
        );
    }
    let long = vec![b' '; (1 << 20) + 1];
    for text in [&long[..], b"\xff", b"", b"{", b"current-context: c"] {
        let refused = Cluster::of_kubeconfig(text).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("cannot use the kubeconfig: "),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_secret_of_a_plugin_or_a_key_is_not_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = file("key", "-----BEGIN PRIVATE KEY----- S3CRET\n");
    let certificate = file("certificate", "");
    let exec = |script: &str| {
        let env = "env: [{name: PASSWORD, value: S3CRET}]";
        let args = format!("args: ['-c', '{script}', S3CRET]");
        format!("exec: {{command: sh, interactiveMode: Never, {args}, {env}}}")
    };
    let status = r#"echo "{status: {token: S3CRET, expirationTimestamp: S3CRET}}""#;
    for (user, why) in [
        (
            exec("echo S3CRET; exit 3"),
            "the credential plugin failed with exit status: 3",
        ),
        (
            exec("echo {token: S3CRET, : }"),
            "the credential plugin's output is not an ExecCredential",
        ),
        (
            exec(status),
            "the time at which the token expires is not a timestamp",
        ),
        (
            format!("client-certificate: {certificate}, client-key: {key}"),
            "the client certificate or its key is not PEM",
        ),
    ] {
        let (_file, access) = kubeconfig(&of_one("server: 'http://127.0.0.1:1'", &user));
        let error = Cluster::open(&access).await.unwrap_err().to_string();
        let message = format!("cannot prepare connections to http://127.0.0.1:1/: {why}");
        assert_eq!(error, message);
    }
}

#[tokio::test]
async fn a_token_that_no_header_can_have_is_refused() {
    for token in [r#""S3CRET\n""#, r#""S3\u0001CRET""#] {
        let text = of_one("server: 'http://127.0.0.1:1'", &format!("token: {token}"));
        let (_file, access) = kubeconfig(&text);
        let message = "cannot connect to http://127.0.0.1:1/: the token has characters that no header can have";
        let error = Cluster::open(&access).await.unwrap_err();
        assert_eq!(error.to_string(), message);
        let error = Cluster::of_kubeconfig(text.as_bytes()).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[tokio::test]
async fn a_server_without_a_scheme_is_asked_and_what_is_none_is_refused() {
    let fake = Fake::start().await;
    fake.fail("get", &[Fault::Says(r#"{"major":"1","minor":"32"}"#)]);
    let address = fake.cluster().address().to_owned();
    let server = address.trim_start_matches("http://").trim_end_matches('/');
    let (_file, access) = kubeconfig(&of_one(&format!("server: '{server}'"), "token: t"));
    let cluster = Cluster::open(&access).await.unwrap();
    assert_eq!(cluster.version().await.unwrap().minor, 32);
    let (_file, access) = kubeconfig(&of_one("server: /foo", "token: t"));
    let error = Cluster::open(&access).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot use the kubeconfig: the server is neither a URL nor a host:port pair: \"/foo\""
    );
}

#[tokio::test]
async fn a_token_file_may_end_with_a_newline() {
    let fake = Fake::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret-token\n").unwrap();
    // A program would be less than the file.
    let user = format!(
        "tokenFile: {}, exec: {{command: 'false'}}",
        file.path().display()
    );
    let server = format!("server: '{}'", fake.cluster().address());
    let (_file, access) = kubeconfig(&of_one(&server, &user));
    let cluster = Cluster::open(&access).await.unwrap();
    drop(cluster.version().await);
    let sent = Some("Bearer secret-token".to_owned());
    assert_eq!(fake.authorizations(), [sent]);
}
