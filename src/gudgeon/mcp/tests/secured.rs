//! The source with certificates: access, and the effect of a changed list or pair.

use std::path::Path;

use super::authority::{Authority, dns, uri};
use super::*;
use crate::grpc::{Bounds, DialAddress, DialTarget, Inbound, dial, framed};
use crate::tls::{Pair, Secure, roots};

const A: &str = "spiffe://x/ns/n/sa/a";
const B: &str = "spiffe://x/ns/n/sa/b";
const BOUNDS: Bounds = Bounds {
    bytes: 1 << 20,
    beyond: Code::OutOfRange,
    values: 1000,
};

impl Authority {
    /// Connects with this identity.
    pub(super) async fn dial(&self, port: u16, id: Option<&str>) -> Result<ReceivedObject, String> {
        self.dial_as(port, id, Some(self), &[]).await
    }

    /// The same, of a server that chains to a root, if that is asked for, and has one of these names.
    async fn dial_as(
        &self,
        port: u16,
        id: Option<&str>,
        root: Option<&Self>,
        names: &[&str],
    ) -> Result<ReceivedObject, String> {
        let pair = id.map(|id| {
            // The list has URIs: a DNS name that looks like one does not count.
            let (chain, key) = self.sign(vec![dns(A), uri(id)]);
            Pair::parse(chain.as_bytes(), key.as_bytes()).unwrap()
        });
        let secure = Secure {
            roots: root.map(|root| roots(root.pem.as_bytes()).unwrap()),
            names: names.iter().map(ToString::to_string).collect(),
            pair,
        };
        let place = DialAddress::Tcp {
            host: "localhost".to_owned(),
            port,
        };
        let target = DialTarget {
            place: &place,
            path: format!("/{SOURCE}/{METHOD}"),
            metadata: Vec::new(),
            tls: Some((secure, None)),
        };
        let dialled = dial(target, BOUNDS).await?;
        let request = RequestResources {
            collection: GATEWAYS.to_owned(),
            ..RequestResources::default()
        };
        dialled.sender.put([framed(&request).into()]);
        Ok(ReceivedObject(dialled))
    }
}

pub(super) struct ReceivedObject(crate::grpc::DialledStream);

impl ReceivedObject {
    async fn next(&mut self) -> Result<Option<Resources>, Status> {
        let inbound: &mut Inbound<_> = &mut self.0.inbound;
        tokio::time::timeout(SOON, inbound.next())
            .await
            .expect("waited in vain")
    }

    pub(super) async fn code(&mut self) -> Code {
        match self.next().await {
            Ok(_) => Code::Ok,
            Err(status) => status.code(),
        }
    }
}

pub(super) fn secured(place: &Path) -> McpServerSettings {
    McpServerSettings {
        insecure: false,
        certificates: Certificates {
            chain: place.join("cert-chain.pem"),
            key: place.join("key.pem"),
            roots: place.join("root-cert.pem"),
        },
        access_list: place.join("list"),
        ..settings()
    }
}

/// In one step, as editors and kubelet do it.
fn write(place: &Path, text: &str) {
    std::fs::write(place.join(".new"), text).unwrap();
    std::fs::rename(place.join(".new"), place.join("list")).unwrap();
}

#[tokio::test]
async fn the_port_is_closed_until_there_are_certificates_and_then_wants_them() {
    let root = tempfile::tempdir().unwrap();
    let mut server = Running::start(secured(root.path()));
    tokio::time::sleep(QUIET).await;
    assert!(!*server.open.borrow());
    let refused = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await;
    assert!(refused.is_err(), "closed");
    let authority = Authority::new();
    authority.write(root.path(), &authority.server());
    server.open.wait_for(|open| *open).await.unwrap();
    server.publish();
    let mut known = authority.dial(server.port, Some(A)).await.unwrap();
    assert_eq!(known.code().await, Code::Ok);
    assert_eq!(server.peers.stream_statuses()[0].identity, [A]);
    for (root, id) in [(&authority, None), (&Authority::new(), Some(A))] {
        let dialled = match root.dial(server.port, id).await {
            Ok(mut dialled) => dialled.next().await.map_err(|status| status.to_string()),
            Err(cause) => Err(cause),
        };
        assert!(dialled.is_err(), "{id:?} {dialled:?}");
    }
    // Another pair: open connections stay, and new ones see it.
    let other = Authority::new();
    other.write(root.path(), &other.server());
    let end = std::time::Instant::now() + SOON;
    while other.dial(server.port, Some(A)).await.is_err() {
        assert!(std::time::Instant::now() < end, "the old pair is shown");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.peers.stream_statuses()[0].identity, [A]);
}

#[tokio::test]
async fn the_list_says_who_may_come_and_who_may_stay() {
    let root = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.write(root.path(), &authority.server());
    write(root.path(), &format!("allowed: [\"{B}\"]"));
    let mut server = Running::start(secured(root.path()));
    server.open.wait_for(|open| *open).await.unwrap();
    server.publish();
    let port = server.port;
    let mut a = authority.dial(port, Some(A)).await.unwrap();
    assert_eq!(a.code().await, Code::Unauthenticated);
    let mut b = authority.dial(port, Some(B)).await.unwrap();
    assert_eq!(b.code().await, Code::Ok);
    // An unreadable list changes nothing.
    write(root.path(), "allowed: {");
    tokio::time::sleep(QUIET).await;
    assert_eq!(server.peers.stream_statuses().len(), 1);
    write(
        root.path(),
        &format!("isBlackList: true\nallowed: [\"{B}\"]"),
    );
    assert_eq!(b.code().await, Code::Unauthenticated);
    let mut a = authority.dial(port, Some(A)).await.unwrap();
    assert_eq!(a.code().await, Code::Ok);
    std::fs::remove_file(root.path().join("list")).unwrap();
    let end = std::time::Instant::now() + SOON;
    loop {
        let mut b = authority.dial(port, Some(B)).await.unwrap();
        if b.code().await == Code::Ok {
            break;
        }
        assert!(
            std::time::Instant::now() < end,
            "without a list everyone may"
        );
    }
}

/// Sources of configuration control every proxy: without a list none is accepted, and none stays when the list is deleted.
#[tokio::test]
async fn a_sink_port_without_a_list_refuses_all_clients() {
    let root = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.write(root.path(), &authority.server());
    let settings = McpServerSettings {
        without_list: DefaultAccess::Nobody,
        ..secured(root.path())
    };
    let server = McpServer::new(settings.clone()).unwrap();
    let access = server.port_access();
    let why = access.why_nobody().unwrap();
    assert!(
        why.contains("no client may connect: there is no access list at ") && why.contains("/list"),
        "{why}"
    );
    drop(server);
    let mut server = Running::start(settings);
    server.open.wait_for(|open| *open).await.unwrap();
    server.publish();
    let mut a = authority.dial(server.port, Some(A)).await.unwrap();
    assert_eq!(a.code().await, Code::Unauthenticated);
    let let_in = |text: String| {
        write(root.path(), &text);
        let (authority, port) = (&authority, server.port);
        async move {
            let end = std::time::Instant::now() + SOON;
            loop {
                let mut a = authority.dial(port, Some(A)).await.unwrap();
                if a.code().await == Code::Ok {
                    return a;
                }
                assert!(std::time::Instant::now() < end, "the list lets it in");
            }
        }
    };
    let mut a = let_in(format!("allowed: [\"{A}\"]")).await;
    std::fs::remove_file(root.path().join("list")).unwrap();
    assert_eq!(a.code().await, Code::Unauthenticated, "it may not stay");
    let mut a = authority.dial(server.port, Some(A)).await.unwrap();
    assert_eq!(a.code().await, Code::Unauthenticated);
    // A list that allows nobody is reported.
    write(root.path(), "allowed: []");
    let empty = McpServer::new(McpServerSettings {
        address: "tcp://127.0.0.1:0".to_owned(),
        ..secured(root.path())
    });
    let why = empty.unwrap().port_access().why_nobody().unwrap();
    assert!(why.contains("allows none"), "{why}");
}

#[tokio::test]
async fn a_list_that_cannot_be_read_at_the_start_is_a_mistake() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "allowed: {");
    let failure = McpServer::new(secured(root.path())).map(drop).unwrap_err();
    assert_eq!(failure.exit, crate::exit::Exit::Config);
    assert!(
        failure.message.contains("--accessListFile"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn a_server_is_who_it_has_to_be() {
    let root = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    authority.write(root.path(), &authority.server());
    let mut server = Running::start(secured(root.path()));
    server.open.wait_for(|open| *open).await.unwrap();
    server.publish();
    let other = Authority::new();
    for (root, names, is_good) in [
        (Some(&authority), &[][..], true),
        (Some(&authority), &["other", "localhost"][..], true),
        (Some(&authority), &["other"][..], false),
        (Some(&other), &[][..], false),
        (Some(&other), &["localhost"][..], false),
        // Without a root any server is accepted.
        (None, &["other"][..], true),
    ] {
        let dialled = authority.dial_as(server.port, Some(A), root, names).await;
        assert_eq!(dialled.is_ok(), is_good, "{names:?} {}", root.is_some());
        if let Ok(mut dialled) = dialled {
            assert_eq!(dialled.code().await, Code::Ok);
        }
    }
}
