//! When requests are sent: as fast as answers come, or at a rate that does not ask for answers.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Failure;
use crate::answer::Asked;
use crate::connection::Connection;
use crate::figures::Run;

/// Sends one request over one connection; returns the time of the response.
async fn ask(connection: &mut Connection, asked: &Asked, number: u64) -> Result<Instant, Failure> {
    let request = asked.request(number, connection.is_http2())?;
    let (status, body) = connection.ask(request).await?;
    let there = Instant::now();
    asked.check(number, status, &body)?;
    Ok(there)
}

/// Each connection sends its next request when it has the answer to the last.
pub(crate) async fn closed(
    connections: &mut Vec<Connection>,
    asked: &Rc<Asked>,
    range: Range<u64>,
) -> Result<Run, Failure> {
    let numbers = Rc::new(RefCell::new(range));
    each(connections, asked, move |mut connection, asked| {
        let numbers = Rc::clone(&numbers);
        async move {
            let mut took = Vec::new();
            loop {
                let Some(number) = numbers.borrow_mut().next() else {
                    return Ok((connection, took, Vec::new()));
                };
                let sent = Instant::now();
                took.push(ask(&mut connection, &asked, number).await? - sent);
            }
        }
    })
    .await
}

/// Sends a request at each beat. Its latency counts from its due time, not from the time it was sent: a server that halts
/// for a while is late for all requests that were due meanwhile.
pub(crate) async fn open(
    connections: &mut Vec<Connection>,
    asked: &Rc<Asked>,
    range: Range<u64>,
    rate: u32,
) -> Result<Run, Failure> {
    let interval = Duration::from_secs(1) / rate;
    let count = u32::try_from(range.end - range.start)?;
    let numbers = Rc::new(RefCell::new((1..).zip(range)));
    let due = Arc::new(Semaphore::new(0));
    let start = Instant::now();
    let beating = {
        let due = Arc::clone(&due);
        std::thread::spawn(move || beat(&due, start, interval, count))
    };
    let run = each(connections, asked, move |mut connection, asked| {
        let (numbers, due) = (Rc::clone(&numbers), Arc::clone(&due));
        async move {
            let (mut took, mut late) = (Vec::new(), Vec::new());
            loop {
                due.acquire().await?.forget();
                let Some((place, number)) = numbers.borrow_mut().next() else {
                    return Ok((connection, took, late));
                };
                let was_due: Instant = start + interval * place;
                late.push(was_due.elapsed());
                let there = ask(&mut connection, &asked, number).await?;
                took.push(there.saturating_duration_since(was_due));
            }
        }
    })
    .await?;
    beating.join().map_err(|_| "the beat has stopped")?;
    Ok(run)
}

type Asking = (Connection, Vec<Duration>, Vec<Duration>);

/// The same work on every connection; they come back with what each answer took, and how late each request was sent.
async fn each<F: Future<Output = Result<Asking, Failure>> + 'static>(
    connections: &mut Vec<Connection>,
    asked: &Rc<Asked>,
    work: impl Fn(Connection, Rc<Asked>) -> F,
) -> Result<Run, Failure> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for connection in connections.drain(..) {
        tasks.spawn_local(work(connection, Rc::clone(asked)));
    }
    let (mut took, mut late) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (connection, took_here, late_here) = done??;
        connections.push(connection);
        took.extend(took_here);
        late.extend(late_here);
    }
    Ok(Run {
        whole: start.elapsed(),
        took,
        late,
    })
}

/// Releases one request at each interval, from a thread of its own: tokio's timer has a resolution of milliseconds.
fn beat(due: &Semaphore, start: Instant, interval: Duration, count: u32) {
    for place in 1..=count {
        std::thread::sleep((start + interval * place).saturating_duration_since(Instant::now()));
        due.add_permits(1);
    }
    // Later tasks find that no request is left.
    due.add_permits(Semaphore::MAX_PERMITS / 2);
}
