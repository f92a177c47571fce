//! The application: a web server on 8080, and the health service of gRPC on 9000.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::host::{Cable, Served};

/// Serves until it is stopped or dropped.
pub(crate) struct Application {
    served: Served,
    heads: Arc<Mutex<String>>,
}

impl Application {
    pub(crate) fn start(cable: &Cable) -> Self {
        let heads: Arc<Mutex<String>> = Arc::default();
        let seen = Arc::clone(&heads);
        let served = Served::start(&cable.pod, move || {
            let at = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            let web = std::net::TcpListener::bind(at(8080)).unwrap();
            web.set_nonblocking(true).unwrap();
            let web = TcpListener::from_std(web).unwrap();
            let orders = TcpIncoming::bind(at(9000)).unwrap();
            async move {
                let reporter = HealthReporter::new();
                reporter
                    .set_service_status("orders", ServingStatus::Serving)
                    .await;
                let health = HealthServer::new(HealthService::from_health_reporter(reporter));
                let orders = Server::builder()
                    .add_service(health)
                    .serve_with_incoming(orders);
                tokio::join!(serve(web, seen), async { orders.await.unwrap() });
            }
        });
        Self { served, heads }
    }

    /// The heads of all requests.
    pub(crate) fn asked(&self) -> String {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn stop(&mut self) {
        self.served.stop();
    }
}

async fn serve(web: TcpListener, seen: Arc<Mutex<String>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = web.accept().await.unwrap();
        connections.spawn(answer(stream, Arc::clone(&seen)));
    }
}

/// Answers `well` to every request.
async fn answer(mut stream: TcpStream, seen: Arc<Mutex<String>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
        if head.ends_with(b"\r\n\r\n") {
            seen.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&head));
            head.clear();
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwell")
                .await?;
        }
    }
}
