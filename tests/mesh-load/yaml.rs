//! The directory that the server serves: one file for each service, and one rule.

use std::path::PathBuf;

use crate::Failure;

pub(crate) const PORT: u16 = 8080;

/// A directory of ServiceEntries.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    endpoints: usize,
}

impl Directory {
    pub(crate) fn new(path: &str, endpoints: usize) -> Self {
        Self {
            path: path.into(),
            endpoints,
        }
    }

    pub(crate) fn write(&self, services: usize) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.path)?;
        (0..services).try_for_each(|service| self.put(service, 0))
    }

    /// Writes the service as of the given change: the last endpoint has a different address for each.
    pub(crate) fn put(&self, service: usize, change: usize) -> Result<(), Failure> {
        let mut text = format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\n\
             spec:\n  hosts: [{host}]\n  location: MESH_INTERNAL\n  resolution: STATIC\n  \
             ports: [{{number: {PORT}, name: http, protocol: HTTP}}]\n  endpoints:\n",
            name = name(service),
            host = host(service),
        );
        for endpoint in 0..self.endpoints {
            let change = if endpoint + 1 == self.endpoints {
                change
            } else {
                0
            };
            text.push_str(&format!(
                "  - address: {}\n",
                address(service, endpoint, change)
            ));
        }
        self.write_at_once(&name(service), &text)
    }

    /// Writes a rule about the first service as of the given change. Proxies of this namespace see it, and no others.
    pub(crate) fn put_rule(&self, namespace: &str, change: usize) -> Result<(), Failure> {
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: rule, namespace: {namespace}}}\n\
             spec:\n  hosts: [{host}]\n  exportTo: ['.']\n  http:\n  - name: {name}\n    timeout: 5s\n    route: \
             [{{destination: {{host: {host}}}}}]\n",
            host = host(0),
            name = route(change),
        );
        self.write_at_once("rule", &text)
    }

    /// In one step, as an editor or a kubelet does it.
    fn write_at_once(&self, name: &str, text: &str) -> Result<(), Failure> {
        let new = self.path.join(format!(".{name}.new"));
        std::fs::write(&new, text)?;
        Ok(std::fs::rename(
            new,
            self.path.join(format!("{name}.yaml")),
        )?)
    }

    pub(crate) fn remove(&self, service: usize) -> Result<(), Failure> {
        Ok(std::fs::remove_file(self.file(service))?)
    }

    fn file(&self, service: usize) -> PathBuf {
        self.path.join(format!("{}.yaml", name(service)))
    }
}

fn name(service: usize) -> String {
    format!("svc-{service:05}")
}

pub(crate) fn host(service: usize) -> String {
    format!("{}.demo.svc.cluster.local", name(service))
}

/// The cluster of a service, and its assignment.
pub(crate) fn cluster(service: usize) -> String {
    format!("outbound|{PORT}||{}", host(service))
}

/// The name of the rule's route after a change.
pub(crate) fn route(change: usize) -> String {
    format!("turn-{change}")
}

/// No two alike: 10.0.0.0 and up, and after a change 172.16.0.0 and up.
pub(crate) fn address(service: usize, endpoint: usize, change: usize) -> String {
    if change == 0 {
        let at = service * 64 + endpoint;
        format!("10.{}.{}.{}", at >> 16 & 255, at >> 8 & 255, at & 255)
    } else {
        let at = service * 256 + change;
        format!(
            "172.{}.{}.{}",
            16 + (at >> 16 & 15),
            at >> 8 & 255,
            at & 255
        )
    }
}
