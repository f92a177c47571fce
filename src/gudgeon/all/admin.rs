//! The plain listener of all roles: one readiness, one document of metrics, one page; and what each role shows by itself.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::StatusCode;

use crate::cli::VERSION;
use crate::exposition::{self, ExpositionFormat};
use crate::html;
use crate::log;
use crate::serve::{full, to_page};
use crate::shared::{AdminRequest, AdminResource, Endpoint, Inspect};
use crate::tls::expiry;

/// Paths below `/debug/` that a single role has.
const OF_ROLES: [(&str, &str); 2] = [("/debug/inject", "injector"), ("/debug/config", "injector")];

/// The roles as one.
pub(super) struct Roles {
    /// The first one answers paths that belong to no other.
    roles: [Arc<dyn Inspect>; 3],
}

impl Roles {
    pub(super) const fn new(roles: [Arc<dyn Inspect>; 3]) -> Self {
        Self { roles }
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
        self.sections(&mut page);
        expiry::draw(&mut page);
        page.push_str("</body></html>\n");
        page
    }

    /// The role that answers a path, and the path as that role knows it: `/debug/galley/configz` is galley's `/debug/configz`.
    fn role(&self, path: &str) -> (&Arc<dyn Inspect>, Option<String>) {
        let [first, ..] = &self.roles;
        let role_named = |name: &str| self.roles.iter().find(|role| role.name() == name);
        if let Some((_, name)) = OF_ROLES.iter().find(|(of, _)| *of == path) {
            return (role_named(name).unwrap_or(first), None);
        }
        let below = path.strip_prefix("/debug/").unwrap_or_default();
        let (name, rest) = below.split_once('/').unwrap_or((below, ""));
        match role_named(name) {
            Some(role) if rest.is_empty() => (role, Some("/debug".to_owned())),
            Some(role) => (role, Some(format!("/debug/{rest}"))),
            None => (first, None),
        }
    }

    fn endpoint_of_role(&self, request: &AdminRequest) -> Option<Endpoint> {
        let (role, path) = self.role(&request.path);
        let request = AdminRequest {
            path: path.unwrap_or_else(|| request.path.clone()),
            ..request.clone()
        };
        let mut endpoint = Arc::clone(role).endpoint(&request)?;
        // Two roles have a `/debug/configz`.
        if let Endpoint::Resource(AdminResource::Document(document)) = &mut endpoint {
            document.key = format!("{}:{}", role.name(), document.key);
        }
        Some(endpoint)
    }
}

impl Inspect for Roles {
    fn name(&self) -> &'static str {
        "gudgeon"
    }

    /// Ready when all are.
    fn readiness(&self) -> Result<String, String> {
        let (mut lines, mut are_ready) = (Vec::new(), true);
        for role in &self.roles {
            let readiness = role.readiness();
            are_ready &= readiness.is_ok();
            let (Ok(report) | Err(report)) = readiness;
            let details = report.lines().filter(|line| *line != "ok");
            lines.extend(details.map(|line| format!("{}: {line}", role.name())));
        }
        let lines = match lines.is_empty() {
            true => "ok".to_owned(),
            false => lines.join("\n"),
        };
        match are_ready {
            true => Ok(lines),
            false => Err(lines),
        }
    }

    fn metrics(&self, format: ExpositionFormat) -> String {
        let all = self.roles.iter().map(|role| role.metrics(format));
        exposition::merged(all, format)
    }

    fn sections(&self, page: &mut String) {
        for role in &self.roles {
            page.push_str(&format!("<section id=\"{}\">\n", role.name()));
            role.sections(page);
            page.push_str("</section>\n");
        }
    }

    fn endpoint(self: Arc<Self>, request: &AdminRequest) -> Option<Endpoint> {
        Some(Endpoint::Resource(match &*request.path {
            "/" => AdminResource::Fixed(to_page()),
            "/ready" => AdminResource::Readiness,
            "/healthz" => AdminResource::Liveness,
            "/metrics" => AdminResource::Metrics,
            "/version" => AdminResource::Version,
            "/debug" | "/debug/" => {
                return Some(Endpoint::document("/debug", move || {
                    let page = self.page();
                    full(StatusCode::OK, "text/html; charset=utf-8", page.into())
                }));
            }
            _ => return self.endpoint_of_role(request),
        }))
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::*;
    use crate::serve::text;

    /// A role that has one page, at the path of another role's.
    struct OneRole(&'static str, Result<String, String>);

    impl Inspect for OneRole {
        fn name(&self) -> &'static str {
            self.0
        }

        fn readiness(&self) -> Result<String, String> {
            self.1.clone()
        }

        fn metrics(&self, _: ExpositionFormat) -> String {
            String::new()
        }

        fn sections(&self, _: &mut String) {}

        fn endpoint(self: Arc<Self>, request: &AdminRequest) -> Option<Endpoint> {
            let is_known = request.path == "/debug/configz";
            is_known.then(|| Endpoint::document("configz", || text(StatusCode::OK, "configz")))
        }
    }

    fn roles(readiness: [Result<&str, &str>; 3]) -> Arc<Roles> {
        let names = ["discovery", "injector", "galley"];
        let mut all = names.into_iter().zip(readiness);
        Arc::new(Roles::new(std::array::from_fn(|_| {
            let (name, readiness) = all.next().unwrap();
            let readiness = readiness.map(str::to_owned).map_err(str::to_owned);
            Arc::new(OneRole(name, readiness)) as Arc<dyn Inspect>
        })))
    }

    /// Documents are shared by key, and two roles have one at `/debug/configz`.
    #[test]
    fn each_role_has_documents_of_its_own() {
        let key = |path: &str| {
            let request = AdminRequest {
                method: Method::GET,
                path: path.to_owned(),
                query: String::new(),
            };
            let endpoint = roles([Ok("ok"); 3]).endpoint(&request)?;
            let Endpoint::Resource(AdminResource::Document(document)) = endpoint else {
                panic!("{path} is a document");
            };
            Some(document.key)
        };
        for (path, expected) in [
            ("/debug/configz", Some("discovery:configz")),
            ("/debug/galley/configz", Some("galley:configz")),
            ("/debug/injector/configz", Some("injector:configz")),
            ("/debug/galley/none", None),
            ("/none", None),
        ] {
            assert_eq!(key(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn all_are_ready_when_each_one_is() {
        for (readiness, expected) in [
            ([Ok("ok"); 3], Ok("ok")),
            ([Ok("ok"), Ok("ok"), Ok("stale")], Ok("galley: stale")),
            (
                [Ok("ok"), Err("starting"), Ok("stale")],
                Err("injector: starting\ngalley: stale"),
            ),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(roles(readiness).readiness(), expected);
        }
    }
}
