//! From a pod to an outcome, by the way of injecting that the configuration has.

use std::sync::Arc;

use serde_json::Value;

use crate::annotations::{self, NATIVE_SIDECAR, PROXY_CONFIG};
use crate::config::{Configuration, Mode};
use crate::data::{Owner, Proxy};
use crate::decision::{self, Policy};
use crate::fragment::{self, Fragment};
use crate::injection::{InjectedPod, Injection, PodProxy, StopReason};
use crate::interface::{NativeSidecars, Origin, Outcome, Request, Review, ReviewTrace, reason};
use crate::labels::{self, Labels};
use crate::metrics;
use crate::native_sidecar;
use crate::output_types;
use crate::overlay;
use crate::probes::{OriginalProbes, ProbeRewrite};
use crate::reinject::{self, Placement};
use crate::release::Release;
use crate::render_cache::RenderCache;
use crate::replaced_values;
use crate::schema::{self, Kind};
use crate::status::{STATUS, Status};
use crate::template::Template;
use crate::uninject::uninject_for_fragment;
use crate::warnings::{self, CONTROL_PLANE_AUTH_POLICY, Warnings, proxy_config_ends};

impl Configuration {
    /// Decides on a pod, and injects it.
    #[must_use]
    pub fn inject(&self, request: &Request, pod: &Value) -> Outcome {
        self.review(request, pod).outcome
    }

    /// Injects as [`Self::inject`] does, and returns a trace of the steps.
    #[must_use]
    pub fn review(&self, request: &Request, pod: &Value) -> Review {
        let mut trace = ReviewTrace::default();
        let outcome = self.outcome(request, pod, &mut trace);
        Review { outcome, trace }
    }

    fn outcome(&self, request: &Request, pod: &Value, trace: &mut ReviewTrace) -> Outcome {
        let root = schema::object("Pod").map_or(Kind::Any, Kind::Object);
        if !pod.is_object() {
            return refused("not a pod: want an object".to_owned(), Vec::new());
        }
        // All that follows relies on these types.
        if let Err(mistake) = output_types::shape(pod, root, "") {
            return refused(format!("not a pod: {mistake}"), Vec::new());
        }
        let own = pod
            .get("metadata")
            .and_then(|metadata| metadata.get("namespace"))
            .and_then(Value::as_str);
        let namespace = own
            .filter(|namespace| !namespace.is_empty())
            .unwrap_or(&request.namespace)
            .to_owned();
        let owner = Owner::of(pod, request, &namespace);
        trace.owner = (owner.kind, owner.name);
        let policy: Option<&Policy> = match request.origin {
            Origin::Webhook => Some(&self.policy),
            Origin::Manifest(_) => None,
        };
        let decision = decision::decide(pod, &namespace, policy);
        let mut warnings = Warnings::default();
        warnings.extend(decision.warning);
        if !decision.inject {
            return Outcome::Skipped {
                reason: decision.reason,
                warnings: warnings.into_vec(),
            };
        }
        let proxy = match self.validate(pod) {
            Ok(proxy) => proxy,
            Err(message) => return refused(message, warnings.into_vec()),
        };
        let proxy = self.proxy_for(pod, proxy, &mut warnings);
        warnings.extend(warnings::dns_policy(pod));
        warnings.extend(warnings::proxy_user(pod, request.ids.uid));
        let injection = Injection {
            configuration: self,
            request,
            sent: pod,
            namespace,
            reason: decision.reason,
            proxy,
            native: self.native(pod, request.native),
            warnings,
            pruned: Vec::new(),
            trace,
        };
        match &self.mode {
            Mode::Fragment {
                template,
                version,
                render_cache,
            } => injection.fragment(template, version, render_cache),
            Mode::Overlay(template_set) => overlay::inject(injection, template_set),
        }
    }

    /// The proxy's configuration of a pod whose annotations are valid. `validated`: by the pod's own annotation.
    fn proxy_for(
        &self,
        pod: &Value,
        validated: Option<PodProxy>,
        warnings: &mut Warnings,
    ) -> Arc<Proxy> {
        let pod_proxy = match self.injected_proxy() {
            // The configuration was valid when it was loaded.
            Some(injected) => injected.ok(),
            None => validated,
        };
        let proxy = match pod_proxy {
            Some(PodProxy {
                proxy,
                warnings: messages,
            }) => {
                let messages = messages.into_iter();
                warnings.extend(
                    messages.map(|warning| format!("annotation {PROXY_CONFIG}: {warning}")),
                );
                Arc::new(proxy)
            }
            None => Arc::clone(&self.proxy),
        };
        let admin_port = proxy.config.proxy_admin_port;
        let annotation_of = |name: &str| self.annotation(pod, name);
        warnings.extend(warnings::proxy_ends(admin_port, annotation_of));
        warnings.extend(warnings::former_name(annotation_of));
        // Other templates may have a proxy of Istio, which takes more.
        if self.is_built_in() {
            let has_policy = annotation_of(CONTROL_PLANE_AUTH_POLICY).is_some();
            let ends = proxy_config_ends(&proxy.config, has_policy).into_iter();
            warnings.extend(ends.map(|end| format!("ProxyConfig: {end}")));
        }
        proxy
    }

    /// Returns true if the proxy of this pod is a native sidecar; the pod's annotation takes precedence.
    fn native(&self, pod: &Value, asked: NativeSidecars) -> bool {
        let annotation = self.annotation(pod, NATIVE_SIDECAR);
        if let Some(is_native) = annotation.and_then(annotations::boolean) {
            return is_native;
        }
        let policy = pod.get("spec").and_then(|spec| spec.get("restartPolicy"));
        match asked {
            NativeSidecars::Off => false,
            NativeSidecars::On => true,
            NativeSidecars::Jobs => {
                let policy = policy.and_then(Value::as_str).unwrap_or_default();
                // A pod without a policy gets `Always` from the API server.
                !policy.is_empty() && policy != "Always"
            }
        }
    }
}

fn refused(message: String, warnings: Vec<String>) -> Outcome {
    Outcome::Refused {
        code: 400,
        reason: reason::BAD_REQUEST,
        message,
        warnings,
        pruned: 0,
    }
}

impl Injection<'_> {
    fn fragment(
        mut self,
        template: &Template,
        version: &str,
        render_cache: &RenderCache<Fragment>,
    ) -> Outcome {
        self.trace.templates = vec![template.name().to_owned()];
        version.clone_into(&mut self.trace.version);
        let now = Status {
            version: version.to_owned(),
            ..Status::default()
        };
        match self.fragment_pod(template, render_cache, now) {
            Ok(injected) => {
                self.trace.native = self.native && native_sidecar::is_native(&injected.pod);
                self.finish(injected)
            }
            Err(stop) => self.stop(stop),
        }
    }

    fn fragment_pod(
        &mut self,
        template: &Template,
        render_cache: &RenderCache<Fragment>,
        mut now: Status,
    ) -> Result<InjectedPod, StopReason> {
        let mut pod = self.sent.clone();
        // Early Istios left no status that can be read, but always the same names.
        let earlier = Status::of(self.sent).unwrap_or_else(Status::legacy);
        let removal = uninject_for_fragment(&mut pod, &earlier, &now.version);
        self.warnings.extend(removal.warnings());
        let (before, owner) = self.prepare(&mut pod, &earlier)?;
        let (mut pod, mut fragment) =
            self.rendered_fragment(template, render_cache, pod, &owner)?;
        now.lists = fragment.names();
        let release = fragment.release();
        let port = fragment.status_port().or_else(|| {
            let of_mesh = release.is_of_istiods_fragments();
            of_mesh.then(|| self.usual_status_port(&pod)).flatten()
        });
        self.rewrite_probes(&mut pod, &mut fragment, port, &removal.originals);
        fragment.put(&mut pod, &self.configuration.mesh);
        metrics::set_variables(&mut pod, &self.path_variables());
        if let (true, Some(port)) = (release.is_of_istiods_fragments(), port) {
            self.merge_metrics(&mut pod, port);
        }
        if self.native {
            native_sidecar::convert(&mut pod, port);
            now.locate(&pod);
        }
        self.label_fragment(&mut pod, release, &owner);
        replaced_values::note(&mut now, &before, &pod);
        fragment::set_annotations(&mut pod, [(STATUS.to_owned(), Value::from(now.to_text()))]);
        let replaced_elements =
            reinject::reinject(self.sent, &mut pod, &earlier, &now, Placement::AtEnd);
        if self.native {
            native_sidecar::order_init(&mut pod, &now);
        } else if release.is_of_istiods_fragments() {
            native_sidecar::order_fragment(&mut pod, &now, self.holds());
        }
        self.warn_of_core_dumps(&now);
        Ok(InjectedPod {
            pod,
            status: now,
            replaced_elements,
        })
    }

    /// Returns the pod, and the fragment that the template prints for it.
    fn rendered_fragment(
        &mut self,
        template: &Template,
        render_cache: &RenderCache<Fragment>,
        pod: Value,
        owner: &Owner,
    ) -> Result<(Value, Fragment), StopReason> {
        let pod = Arc::new(pod);
        let text = self.render(template, &pod, owner)?;
        // The rendering has let go of it.
        let pod = Arc::unwrap_or_clone(pod);
        let fragment = self.read(template, text, render_cache, Fragment::read)?;
        let Some(mut fragment) = fragment else {
            return Err(StopReason::Skip(reason::EMPTY_TEMPLATE));
        };
        fragment.complete(&pod);
        Ok((pod, fragment))
    }

    /// Rewrites the probes of the application, if pod or template want that and the proxy has a status port.
    fn rewrite_probes(
        &mut self,
        pod: &mut Value,
        fragment: &mut Fragment,
        port: Option<u16>,
        earlier: &OriginalProbes,
    ) {
        let Some(port) = port.filter(|_| fragment::rewrites(pod, fragment)) else {
            return;
        };
        let rewriting = ProbeRewrite {
            probers: self.configuration.agents.probers(fragment.release()),
            port,
            earlier,
        };
        // Nothing of the template is in the pod yet, so that all probes are the application's.
        let originals = rewriting.rewrite(pod, |_, _| false, &mut self.warnings);
        fragment.set_original_probes(&originals);
    }

    fn label_fragment(&mut self, pod: &mut Value, release: Release, owner: &Owner) {
        let labels = self.configuration.agents.labels(release);
        let network = self.configuration.network(&self.request.proxy_envs);
        let mut others = Vec::new();
        if labels == Labels::All {
            others.extend(network.map(|name| (labels::NETWORK, name)));
        }
        if release.is_of_istiods_fragments() {
            others.push((
                labels::REVISION,
                self.configuration.parameters.revision.as_str(),
            ));
        }
        let left_out = labels::add(pod, labels, owner, &others);
        self.warnings.extend(left_out);
    }
}
