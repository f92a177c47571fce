//! A client of raw streams: it sends scripted requests, and returns each response as it comes.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use mcp::message::{RequestResources, Resources};
use prost::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Generous, since the machine may be loaded.
pub const SOON: Duration = Duration::from_secs(60);
/// The time after which a silent stream counts as quiet.
pub const QUIET: Duration = Duration::from_millis(300);

/// tonic's streams with messages of prost: `S` is sent, `H` is received.
struct Plain<S, H>(PhantomData<(S, H)>);

pub struct Coder<M>(PhantomData<M>);

impl<S, H> Codec for Plain<S, H>
where
    S: Message + 'static,
    H: Message + Default + 'static,
{
    type Encode = S;
    type Decode = H;
    type Encoder = Coder<S>;
    type Decoder = Coder<H>;

    fn encoder(&mut self) -> Coder<S> {
        Coder(PhantomData)
    }

    fn decoder(&mut self) -> Coder<H> {
        Coder(PhantomData)
    }
}

impl<M: Message> Encoder for Coder<M> {
    type Item = M;
    type Error = Status;

    fn encode(&mut self, item: M, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item.encode_to_vec());
        Ok(())
    }
}

impl<M: Message + Default> Decoder for Coder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        M::decode(bytes)
            .map(Some)
            .map_err(|cause| Status::internal(cause.to_string()))
    }
}

/// The client's messages, as a stream.
struct RequestBody<M>(UnboundedReceiver<M>);

impl<M> Stream for RequestBody<M> {
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<M>> {
        self.0.poll_recv(cx)
    }
}

/// A stream, from the side that has dialled.
pub struct Talk<S, H> {
    requests: UnboundedSender<S>,
    responses: Streaming<H>,
    pub version: Option<String>,
}

/// A sink that dials.
pub type Client = Talk<RequestResources, Resources>;
/// A source that dials.
pub type Source = Talk<Resources, RequestResources>;

impl<S, H> Talk<S, H>
where
    S: Message + 'static,
    H: Message + Default + 'static,
{
    pub async fn call(channel: &Channel, path: &'static str) -> Result<Self, Status> {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc = grpc.max_decoding_message_size(usize::MAX);
        grpc.ready()
            .await
            .map_err(|cause| Status::unavailable(cause.to_string()))?;
        let (requests, to) = unbounded_channel();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
        let answer = grpc
            .streaming(
                tonic::Request::new(RequestBody(to)),
                path,
                Plain(PhantomData),
            )
            .await?;
        let version = answer.metadata().get("version");
        let version = version.map(|version| version.to_str().unwrap().to_owned());
        Ok(Self {
            requests,
            responses: answer.into_inner(),
            version,
        })
    }

    pub fn say(&self, message: S) {
        self.requests.send(message).unwrap();
    }

    pub async fn next(&mut self) -> H {
        self.message().await.unwrap().unwrap()
    }

    pub async fn message(&mut self) -> Result<Option<H>, Status> {
        tokio::time::timeout(SOON, self.responses.message())
            .await
            .expect("waited in vain")
    }

    pub async fn code(&mut self) -> Code {
        loop {
            match self.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }

    pub async fn is_quiet(&mut self) -> bool {
        tokio::time::timeout(QUIET, self.responses.message())
            .await
            .is_err()
    }
}

impl Client {
    pub async fn open(channel: &Channel) -> Result<Self, Status> {
        Self::call(
            channel,
            "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream",
        )
        .await
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
}

impl Source {
    pub async fn dial(channel: &Channel) -> Result<Self, Status> {
        Self::call(
            channel,
            "/istio.mcp.v1alpha1.ResourceSink/EstablishResourceStream",
        )
        .await
    }
}

pub fn names(response: &Resources) -> Vec<String> {
    let names = response.resources.iter();
    names
        .map(|one| one.metadata.as_ref().unwrap().name.clone())
        .collect()
}
