//! The plain listener of all roles: one readiness, one document of metrics, one page; and what each role shows by itself.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode, Uri};
use serde_json::json;

use crate::cli::{REVISION, VERSION};
use crate::exposition::{self, ExpositionFormat};
use crate::html;
use crate::log;
use crate::serve::{
    Answer, AnswerPriority, Answering, Connection, Service, SharedAnswers, WantedAnswer, as_json,
    full, guard, not_allowed, ready, text, to_page,
};
use crate::shared::Inspect;
use crate::tls::expiry;

/// Paths below `/debug/` that a single role has.
const OF_ROLES: [(&str, &str); 2] = [("/debug/inject", "injector"), ("/debug/config", "injector")];

/// A plain listener.
pub(super) struct Admin {
    /// The roles; the first one answers paths that belong to no other.
    roles: [Arc<dyn Inspect>; 3],
    /// Any client may read `/debug`.
    open: bool,
    answers: Arc<SharedAnswers>,
}

impl Admin {
    /// Creates an admin of each listener; `opens` are true for those where any client may read `/debug`.
    ///
    /// They share their answers: a role sets its gauges when its metrics are rendered, so there is one rendering at a time.
    pub(super) fn of_listeners(
        opens: impl IntoIterator<Item = bool>,
        roles: impl Fn(bool) -> [Arc<dyn Inspect>; 3],
    ) -> Vec<Arc<Self>> {
        let answers = Arc::<SharedAnswers>::default();
        let admin = |open| Self {
            roles: roles(open),
            open,
            answers: Arc::clone(&answers),
        };
        opens.into_iter().map(admin).map(Arc::new).collect()
    }

    /// Ready when all are.
    fn ready(&self) -> Answer {
        let (mut lines, mut status) = (Vec::new(), StatusCode::OK);
        for role in &self.roles {
            let report = match role.readiness() {
                Ok(report) => report,
                Err(why) => {
                    status = StatusCode::SERVICE_UNAVAILABLE;
                    why
                }
            };
            let details = report.lines().filter(|line| *line != "ok");
            lines.extend(details.map(|line| format!("{}: {line}", role.name())));
        }
        match lines.is_empty() {
            true => text(status, "ok"),
            false => text(status, &lines.join("\n")),
        }
    }

    fn page(&self) -> String {
        let mut page = String::with_capacity(32 << 10);
        let style: String = self.roles.iter().map(|role| role.style()).collect();
        html::head(&mut page, "gudgeon", &style);
        let links = self.roles.iter().map(|role| {
            let (class, state) = match role.readiness() {
                Ok(_) => ("good", "ready"),
                Err(_) => ("bad", "not ready"),
            };
            let name = role.name();
            format!("<a href=\"#{name}\">{name}</a>: <span class=\"{class}\">{state}</span>")
        });
        let links: Vec<_> = links.collect();
        page.push_str(&format!(
            "<h1>gudgeon {VERSION}</h1><p>{} &middot; {} &middot; <a href=\"/metrics\">metrics</a></p>\n",
            log::stamp(SystemTime::now()),
            links.join(" &middot; ")
        ));
        for role in &self.roles {
            page.push_str(&format!("<section id=\"{}\">\n", role.name()));
            role.sections(&mut page);
            page.push_str("</section>\n");
        }
        expiry::draw(&mut page);
        page.push_str("</body></html>\n");
        page
    }

    fn metrics(&self, format: ExpositionFormat) -> String {
        let all = self.roles.iter().map(|role| role.metrics(format));
        exposition::merged(all, format)
    }

    /// A document of all roles, made beside the loop.
    fn apart(
        self: Arc<Self>,
        key: &str,
        audience: AnswerPriority,
        document: impl FnOnce(&Self) -> Answer + Send + 'static,
    ) -> Answering {
        let wanted = WantedAnswer {
            key: key.to_owned(),
            state: None,
            priority: audience,
        };
        let shared = Arc::clone(&self.answers);
        Box::pin(async move {
            let this = Arc::clone(&self);
            Ok(shared.respond(wanted, move || document(&this)).await)
        })
    }

    /// The role that answers a path, and the path as that role knows it: `/debug/galley/configz` is galley's `/debug/configz`.
    fn role(&self, path: &str) -> (&Arc<dyn Inspect>, Option<String>) {
        let [first, ..] = &self.roles;
        let named = |name: &str| self.roles.iter().find(|role| role.name() == name);
        if let Some((_, name)) = OF_ROLES.iter().find(|(of, _)| *of == path) {
            return (named(name).unwrap_or(first), None);
        }
        let below = path.strip_prefix("/debug/").unwrap_or_default();
        let (name, rest) = below.split_once('/').unwrap_or((below, ""));
        match named(name) {
            Some(role) if rest.is_empty() => (role, Some("/debug".to_owned())),
            Some(role) => (role, Some(format!("/debug/{rest}"))),
            None => (first, None),
        }
    }
}

impl Service for Admin {
    fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> Answering {
        let path = request.uri().path();
        let is_page = matches!(path, "/debug" | "/debug/");
        let is_ours =
            is_page || matches!(path, "/" | "/ready" | "/healthz" | "/version" | "/metrics");
        if !is_ours {
            let (role, path) = self.role(path);
            let role = Arc::clone(role);
            if let Some(uri) = path.and_then(|path| with_path(request.uri(), &path)) {
                *request.uri_mut() = uri;
            }
            // Each role guards its own pages.
            return role.answer(request, connection);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return ready(not_allowed("GET, HEAD"));
        }
        if is_page && let Err(refused) = guard(&request, connection.peer.ip(), self.open) {
            return ready(refused);
        }
        ready(match path {
            "/" => to_page(),
            "/ready" => self.ready(),
            // An answer proves that the event loop runs.
            "/healthz" => text(StatusCode::OK, "ok"),
            "/version" => as_json(&json!({"version": VERSION, "revision": REVISION})),
            "/metrics" => {
                let format = ExpositionFormat::negotiate(request.headers());
                return self.apart(format.key(), AnswerPriority::Monitoring, move |this| {
                    let body = this.metrics(format);
                    full(StatusCode::OK, format.content_type(), body.into())
                });
            }
            _ => {
                return self.apart("/debug", AnswerPriority::People, |this| {
                    full(
                        StatusCode::OK,
                        "text/html; charset=utf-8",
                        this.page().into(),
                    )
                });
            }
        })
    }
}

/// Returns the URI with another path.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Role;

    impl Service for Role {
        fn answer(self: Arc<Self>, _: Request<Incoming>, _: &Arc<Connection>) -> Answering {
            ready(to_page())
        }
    }

    impl Inspect for Role {
        fn name(&self) -> &'static str {
            "role"
        }

        fn readiness(&self) -> Result<String, String> {
            Ok("ok".to_owned())
        }

        fn metrics(&self, _: ExpositionFormat) -> String {
            String::new()
        }

        fn sections(&self, _: &mut String) {}
    }

    /// Two scrapes at a time used to count galley's gauges twice.
    #[test]
    fn listeners_render_one_document_at_a_time() {
        let admins = Admin::of_listeners([true, false], |_| {
            std::array::from_fn(|_| Arc::new(Role) as Arc<dyn Inspect>)
        });
        let [open, local] = &*admins else {
            panic!("one of each listener")
        };
        assert!(open.open && !local.open);
        assert!(Arc::ptr_eq(&open.answers, &local.answers));
    }
}
