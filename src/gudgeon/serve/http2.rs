//! Settings of HTTP/2 that all listeners share.

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Bytes of a request's head at most, of HTTP/1.1 as well. Chosen: hyper's default.
pub(super) const MAX_HEAD_BYTES: u32 = 16 << 10;
/// The initial flow-control window of a stream, in bytes: the default of RFC 9113, section 6.9.2.
const STREAM_WINDOW: u32 = (64 << 10) - 1;

/// Returns a builder of connections with a flow-control window of so many bytes and so many requests at a time.
pub(crate) fn http2_builder(connection_window: u32, max_streams: u32) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(connection_window)
        .max_concurrent_streams(max_streams);
    builder
}
