//! A client of raw streams: it says what a test wants said, and shows each message as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use mcp::message::{RequestResources, Resources};
use prost::Message as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Generous: the machine may be busy with something else altogether.
pub const SOON: Duration = Duration::from_secs(30);
/// Nothing comes within this time, if nothing comes.
pub const QUIET: Duration = Duration::from_millis(300);

/// tonic's streams with messages of prost.
pub struct Plain;

pub struct Coder;

impl Codec for Plain {
    type Encode = RequestResources;
    type Decode = Resources;
    type Encoder = Coder;
    type Decoder = Coder;

    fn encoder(&mut self) -> Coder {
        Coder
    }

    fn decoder(&mut self) -> Coder {
        Coder
    }
}

impl Encoder for Coder {
    type Item = RequestResources;
    type Error = Status;

    fn encode(&mut self, item: Self::Item, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item.encode_to_vec());
        Ok(())
    }
}

impl Decoder for Coder {
    type Item = Resources;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Resources>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        Resources::decode(bytes)
            .map(Some)
            .map_err(|cause| Status::internal(cause.to_string()))
    }
}

/// What a client says next.
pub struct Said(UnboundedReceiver<RequestResources>);

impl Stream for Said {
    type Item = RequestResources;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<RequestResources>> {
        self.0.poll_recv(cx)
    }
}

/// A stream of a client.
pub struct Client {
    said: UnboundedSender<RequestResources>,
    heard: Streaming<Resources>,
    pub version: Option<String>,
}

impl Client {
    pub async fn open(channel: &Channel) -> Result<Self, Status> {
        Self::call(
            channel,
            "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream",
        )
        .await
    }

    pub async fn call(channel: &Channel, path: &'static str) -> Result<Self, Status> {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc = grpc.max_decoding_message_size(usize::MAX);
        grpc.ready()
            .await
            .map_err(|cause| Status::unavailable(cause.to_string()))?;
        let (said, to) = unbounded_channel();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        let answer = grpc
            .streaming(tonic::Request::new(Said(to)), path, Plain)
            .await?;
        let version = answer.metadata().get("version");
        let version = version.map(|version| version.to_str().unwrap().to_owned());
        Ok(Self {
            said,
            heard: answer.into_inner(),
            version,
        })
    }

    pub fn say(&self, request: RequestResources) {
        self.said.send(request).unwrap();
    }

    pub fn ask(&self, collection: &str) {
        self.say(RequestResources {
            collection: collection.to_owned(),
            ..RequestResources::default()
        });
    }

    pub fn answer(&self, response: &Resources, error: Option<i32>) {
        self.say(RequestResources {
            collection: response.collection.clone(),
            response_nonce: response.nonce.clone(),
            incremental: response.incremental,
            error_detail: error.map(|code| api::google::rpc::Status {
                code,
                message: "no".to_owned(),
                details: Vec::new(),
            }),
            ..RequestResources::default()
        });
    }

    pub async fn next(&mut self) -> Resources {
        self.heard().await.unwrap().unwrap()
    }

    pub async fn heard(&mut self) -> Result<Option<Resources>, Status> {
        tokio::time::timeout(SOON, self.heard.message())
            .await
            .expect("waited in vain")
    }

    pub async fn code(&mut self) -> Code {
        loop {
            match self.heard().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }

    pub async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(QUIET, self.heard.message())
            .await
            .is_err()
    }
}

pub fn names(response: &Resources) -> Vec<String> {
    let names = response.resources.iter();
    names
        .map(|one| one.metadata.as_ref().unwrap().name.clone())
        .collect()
}
