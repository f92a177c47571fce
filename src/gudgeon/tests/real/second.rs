//! Another webhook, which comes after the injector and changes the pod too.

use std::convert::Infallible;
use std::sync::Arc;

use base64::Engine as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::run;

/// From the pod to the operations.
pub(crate) type Change = fn(&Value) -> Value;

/// Serves on a thread of its own until the test ends; gives the port.
pub(crate) fn serve(change: Change) -> u16 {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap().port()).unwrap();
            let local = tokio::task::LocalSet::new();
            local.run_until(accept(listener, change)).await;
        });
    });
    receiver.recv().unwrap()
}

async fn accept(listener: TcpListener, change: Change) {
    let chain = CertificateDer::pem_file_iter(run().join("webhook.crt"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let key = PrivateKeyDer::from_pem_file(run().join("webhook.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    while let Ok((connection, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::task::spawn_local(async move {
            let connection = acceptor.accept(connection).await.ok()?;
            let service = service_fn(move |request| answer(request, change));
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(connection), service)
                .await
                .ok()
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    change: Change,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let patch = change(&review["request"]["object"]).to_string();
    let patch = base64::engine::general_purpose::STANDARD.encode(patch);
    let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": {
        "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch}});
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}
