//! Certificates of its own: a CA and a leaf that exist in memory only, and when each is renewed.
//!
//! A leaf is renewed at two thirds of its life, the CA at two thirds of its own, which is twelve times as long. A new CA is
//! shown in the bundle first and signs later, so that clients that trust the bundle have it by then; as long as the bundle cannot be
//! published, the old CA goes on signing. An old one stays in the bundle until it expires. Time is an argument.
//!
//! The wall clock may be set at any time, both ways: a machine without a clock of its own starts in 1970, or where it stopped. A
//! certificate that is not valid at the present time is replaced at once, whether it has expired or its time has not come yet.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use time::OffsetDateTime;

use super::pair::{Pair, PairError};

/// By this subject every replica knows the CAs of the others.
pub(crate) const SUBJECT: &str = "gudgeon-self-signed-ca";
/// The lifetime of a CA, in lifetimes of a leaf.
const CA_LIVES: u32 = 12;
/// The time that a new CA is in the bundle before it signs a served leaf; a tenth of a leaf's life if that is shorter.
const LEAD: Duration = Duration::from_secs(60);
/// Tolerance for clock skew: certificates are valid from so long before their creation. Chosen: more than a hardware clock is ahead
/// that has the local time of any zone.
const SKEW: Duration = Duration::from_secs(24 * 3600);
/// The longest interval of steps. Chosen: less than API servers wait for a webhook, since a clock that is set may end every certificate.
const MAX_STEP_INTERVAL: Duration = Duration::from_secs(5);
/// Certificates count in seconds, and a third of one is needed.
const MIN_LIFETIME: Duration = Duration::from_secs(3);

/// The names that the leaf is valid for.
#[derive(Clone, Debug)]
pub(crate) struct LeafNames(Vec<SanType>);

impl LeafNames {
    /// The Service by all its names, this host, and others.
    ///
    /// # Errors
    /// One that is neither a name nor an address.
    pub(crate) fn new(
        service: &str,
        namespace: &str,
        others: &[String],
    ) -> Result<Self, (String, &'static str)> {
        let mut names = vec![
            service.to_owned(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
        ];
        for other in others {
            if !names.contains(other) {
                names.push(other.clone());
            }
        }
        let mut subject_names = Vec::with_capacity(names.len());
        for name in names {
            let is_name = !name.is_empty()
                && name.len() <= 253
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte));
            subject_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => match Ia5String::try_from(name.clone()) {
                    Ok(name) if is_name => SanType::DnsName(name),
                    Ok(_) | Err(_) => return Err((name, "neither a name nor an address")),
                },
            });
        }
        Ok(Self(subject_names))
    }
}

#[derive(Debug)]
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    issued_at: SystemTime,
    not_after: SystemTime,
}

/// A CA that signs no more.
#[derive(Debug)]
struct FormerCa {
    pem: String,
    not_after: SystemTime,
}

/// The next CA: in the bundle already; signs the next leaf that is due once clients have it.
#[derive(Debug)]
struct NextCa {
    ca: Ca,
    /// The time since which clients have had the bundle.
    published: Option<SystemTime>,
}

/// Tells whether clients have the bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publication {
    /// Another program hands the bundle to clients at once.
    Unobserved,
    Pending,
    Complete,
}

/// Makes a key, unless the system has no random numbers.
type NewKey = fn() -> Result<KeyPair, String>;

/// The CA, the leaf that it signed, and what comes next.
#[derive(Debug)]
pub(crate) struct Authority {
    names: LeafNames,
    life: Duration,
    new_key: NewKey,
    current: Ca,
    next: Option<NextCa>,
    /// Former ones.
    old: Vec<FormerCa>,
    leaf: Pair,
    leaf_issued_at: SystemTime,
}

/// The changes of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) leaf: bool,
    pub(crate) bundle: bool,
}

impl Authority {
    /// Creates a CA and its first leaf, for immediate use, since nothing was served before.
    ///
    /// # Errors
    /// The lifetime is too short, or there are no random numbers.
    pub(crate) fn new(names: LeafNames, life: Duration, now: SystemTime) -> Result<Self, String> {
        if life < MIN_LIFETIME {
            return Err(format!("want at least {} s", MIN_LIFETIME.as_secs()));
        }
        let new_key: NewKey = key;
        let current = Ca::new(new_key()?, life, now)?;
        let leaf = current.sign(&new_key()?, &names, life, now)?;
        Ok(Self {
            names,
            life,
            new_key,
            current,
            next: None,
            old: Vec::new(),
            leaf,
            leaf_issued_at: now,
        })
    }

    pub(crate) const fn leaf(&self) -> &Pair {
        &self.leaf
    }

    /// Returns all CA certificates that clients may need, as PEM, newest first.
    pub(crate) fn bundle(&self) -> String {
        let mut bundle = String::new();
        if let Some(next) = &self.next {
            bundle.push_str(&next.ca.pem);
        }
        bundle.push_str(&self.current.pem);
        for former in &self.old {
            bundle.push_str(&former.pem);
        }
        bundle
    }

    /// The time that a bundle is published before a leaf needs it.
    fn lead(&self) -> Duration {
        LEAD.min(self.life / 10)
    }

    /// Returns the pause before the next step: it comes before a renewal is due, since the wall clock may be set, and to see when
    /// clients have the bundle.
    pub(crate) fn pause(&self, now: SystemTime) -> Duration {
        let wait = self.due().duration_since(now).unwrap_or_default();
        wait.min(self.lead()).min(MAX_STEP_INTERVAL)
    }

    fn leaf_due(&self) -> SystemTime {
        self.leaf_issued_at + self.life * 2 / 3
    }

    fn ca_due(&self) -> SystemTime {
        self.current.issued_at + self.life * CA_LIVES * 2 / 3
    }

    /// Returns the time of the next change, unless the clock is set.
    fn due(&self) -> SystemTime {
        let mut due = self.leaf_due();
        // Once the next CA exists, `ca_due` has passed, and only a new leaf takes that CA over.
        if self.next.is_none() {
            due = due.min(self.ca_due());
        }
        for former in &self.old {
            due = due.min(former.not_after);
        }
        due
    }

    /// Renews the CA and the leaf if they are due; `publication` is that of the present bundle. What has changed counts even after
    /// an error: the system has no random numbers, and the certificates that are not renewed stay.
    pub(crate) fn step(
        &mut self,
        now: SystemTime,
        publication: Publication,
    ) -> (Changed, Result<(), String>) {
        if let Some(next) = &mut self.next {
            next.observe(now, publication);
        }
        let mut changed = Changed::default();
        let renewed = self.renew(now, &mut changed);
        (changed, renewed)
    }

    fn renew(&mut self, now: SystemTime, changed: &mut Changed) -> Result<(), String> {
        let before = self.old.len();
        self.old.retain(|former| former.not_after > now);
        changed.bundle |= self.old.len() != before;
        let of_the_future = |next: &mut NextCa| !has_begun(next.ca.issued_at, now);
        changed.bundle |= self.next.take_if(of_the_future).is_some();
        let is_early = |issued_at| !has_begun(issued_at, now);
        let is_ca_due = now >= self.ca_due() || is_early(self.current.issued_at);
        if self.next.is_none() && is_ca_due {
            self.next = Some(NextCa {
                ca: Ca::new((self.new_key)()?, self.life, now)?,
                published: None,
            });
            changed.bundle = true;
        }
        if now >= self.leaf_due()
            || is_early(self.leaf_issued_at)
            || is_early(self.current.issued_at)
        {
            self.renew_leaf(now, changed)?;
        }
        Ok(())
    }

    fn renew_leaf(&mut self, now: SystemTime, changed: &mut Changed) -> Result<(), String> {
        let key = (self.new_key)()?;
        let lead = self.lead();
        // A leaf that outlives its CA is of no use, nor is one of a CA whose time has not come, whoever has the next one.
        let is_exhausted =
            now + self.life > self.current.not_after || !has_begun(self.current.issued_at, now);
        let takes_over = |next: &mut NextCa| is_exhausted || next.is_ripe(now, lead);
        if let Some(next) = self.next.take_if(takes_over) {
            let former = std::mem::replace(&mut self.current, next.ca);
            if former.not_after > now && has_begun(former.issued_at, now) {
                self.old.push(FormerCa {
                    pem: former.pem,
                    not_after: former.not_after,
                });
            }
            changed.bundle = true;
        }
        self.leaf = self.current.sign(&key, &self.names, self.life, now)?;
        self.leaf_issued_at = now;
        changed.leaf = true;
        Ok(())
    }
}

/// Returns true if a certificate that was made then is valid already: the clock was not set back too far since.
fn has_begun(issued_at: SystemTime, now: SystemTime) -> bool {
    issued_at <= now + SKEW
}

impl NextCa {
    fn observe(&mut self, now: SystemTime, publication: Publication) {
        self.published = match publication {
            Publication::Unobserved => Some(self.ca.issued_at),
            Publication::Pending => None,
            Publication::Complete => self.published.or(Some(now)),
        };
    }

    fn is_ripe(&self, now: SystemTime, lead: Duration) -> bool {
        self.published.is_some_and(|since| now >= since + lead)
    }
}

impl Ca {
    fn new(key: KeyPair, life: Duration, now: SystemTime) -> Result<Self, String> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, SUBJECT);
        // The CA signs leaves and no further CA.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let not_after = valid(&mut params, now, life * CA_LIVES);
        let pem = params
            .self_signed(&key)
            .map_err(|cause| format!("cannot make a CA: {cause}"))?
            .pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
            issued_at: now,
            not_after,
        })
    }

    fn sign(
        &self,
        key: &KeyPair,
        names: &LeafNames,
        life: Duration,
        now: SystemTime,
    ) -> Result<Pair, String> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "gudgeon");
        params.subject_alt_names.clone_from(&names.0);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // The CAs of all replicas have one subject: the key identifier tells which one signed this leaf.
        params.use_authority_key_identifier_extension = true;
        valid(&mut params, now, life);
        let leaf = params
            .signed_by(key, &self.issuer)
            .map_err(|cause| format!("cannot sign a certificate: {cause}"))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Pair::of(vec![leaf.into()], &key).map_err(|error| match error {
            PairError::Chain(cause) | PairError::Key(cause) => {
                format!("cannot use the certificate just made: {cause}")
            }
            PairError::Mismatch => "cannot use the certificate just made".to_owned(),
        })
    }
}

fn key() -> Result<KeyPair, String> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|cause| format!("cannot make a key: {cause}"))
}

fn valid(params: &mut CertificateParams, now: SystemTime, life: Duration) -> SystemTime {
    // A certificate counts in whole seconds.
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = UNIX_EPOCH + Duration::from_secs(since);
    let not_after = now + life;
    // Some clients cannot read a time before 1970.
    params.not_before = OffsetDateTime::from((now - SKEW).max(UNIX_EPOCH));
    params.not_after = OffsetDateTime::from(not_after);
    not_after
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::crypto::ring;
    use rustls::pki_types::{ServerName, UnixTime};
    use std::sync::Arc;

    use super::super::pair::certificates;
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn start() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn new_authority(life: Duration) -> Authority {
        let names = LeafNames::new("hook", "mesh", &["other.example".into(), "10.0.0.1".into()]);
        Authority::new(names.unwrap(), life, start()).unwrap()
    }

    /// The changes of a step that succeeds.
    fn stepped(authority: &mut Authority, now: SystemTime) -> Changed {
        let (changed, renewed) = authority.step(now, Publication::Unobserved);
        assert_eq!(renewed, Ok(()));
        changed
    }

    /// The verdict of a client that trusts this bundle.
    fn trusts(bundle: &str, leaf: &Pair, name: &str, now: SystemTime) -> bool {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(bundle.as_bytes()).unwrap() {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let since = now.duration_since(UNIX_EPOCH).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let time = UnixTime::since_unix_epoch(since);
        verifier
            .verify_server_cert(&leaf.key.cert[0], &[], &name, &[], time)
            .is_ok()
    }

    #[test]
    fn every_name_is_valid() {
        let authority = new_authority(HOUR);
        for name in [
            "hook",
            "hook.mesh",
            "hook.mesh.svc",
            "hook.mesh.svc.cluster.local",
            "localhost",
            "127.0.0.1",
            "::1",
            "other.example",
            "10.0.0.1",
        ] {
            assert!(
                trusts(&authority.bundle(), authority.leaf(), name, start()),
                "{name}"
            );
        }
        assert!(!trusts(
            &authority.bundle(),
            authority.leaf(),
            "10.0.0.2",
            start()
        ));
        let (name, _) = LeafNames::new("hook", "a b", &[]).unwrap_err();
        assert_eq!(name, "hook.a b");
    }

    #[test]
    fn a_leaf_is_renewed_at_two_thirds() {
        let mut authority = new_authority(3 * HOUR);
        assert_eq!(authority.due(), start() + 2 * HOUR);
        let early = start() + 2 * HOUR - Duration::from_secs(1);
        assert_eq!(stepped(&mut authority, early), Changed::default());
        let before = authority.bundle();
        let changed = stepped(&mut authority, start() + 2 * HOUR);
        assert_eq!(
            changed,
            Changed {
                leaf: true,
                bundle: false
            }
        );
        assert_eq!(authority.bundle(), before);
        assert_eq!(authority.leaf().not_after, start() + 5 * HOUR);
    }

    /// A client that reads the bundle as late as the lead allows trusts every leaf ever served, for three lives of a CA.
    #[test]
    fn a_client_of_the_bundle_trusts_each_leaf() {
        for life in [Duration::from_secs(30), 3 * HOUR, 720 * HOUR] {
            let mut authority = new_authority(life);
            let lead = LEAD.min(life / 10);
            let mut published = vec![(start(), authority.bundle())];
            let (mut leaves, mut bundles) = (0, 0);
            let end = start() + life * 36;
            while authority.due() < end {
                let now = authority.due();
                let changed = stepped(&mut authority, now);
                if changed.bundle {
                    published.push((now, authority.bundle()));
                    bundles += 1;
                }
                if !changed.leaf {
                    continue;
                }
                leaves += 1;
                let (_, bundle) = published
                    .iter()
                    .rev()
                    .find(|(since, _)| *since + lead <= now)
                    .unwrap();
                assert!(
                    trusts(bundle, authority.leaf(), "hook", now),
                    "leaf {leaves}"
                );
                let late = now + life - Duration::from_secs(1);
                assert!(trusts(&authority.bundle(), authority.leaf(), "hook", late));
            }
            assert!((50..60).contains(&leaves), "{leaves}");
            assert!(bundles >= 8, "{bundles}");
            assert!(certificates(authority.bundle().as_bytes()).unwrap().len() <= 3);
        }
    }

    /// A bundle that could not be written (403, or an API server that was away) used to be ignored: pods were refused while the old
    /// CA was good for a third of its life yet.
    #[test]
    fn the_old_ca_signs_until_clients_have_the_next() {
        let life = 3 * HOUR;
        let lead = LEAD.min(life / 10);
        for (publication, signs_after) in [
            (Publication::Pending, life * (CA_LIVES - 1)),
            (Publication::Complete, life * CA_LIVES * 2 / 3),
        ] {
            let mut authority = new_authority(life);
            let first = authority.bundle();
            let mut switched = None;
            let mut now = start();
            while switched.is_none() {
                now += lead;
                let (changed, renewed) = authority.step(now, publication);
                assert_eq!(renewed, Ok(()));
                if changed.leaf && !trusts(&first, authority.leaf(), "hook", now) {
                    switched = Some(now.duration_since(start()).unwrap());
                }
            }
            let switched = switched.unwrap();
            let is_soon = (signs_after..=signs_after + life).contains(&switched);
            assert!(is_soon, "{publication:?}: {switched:?}");
        }
    }

    #[test]
    fn the_lead_begins_when_clients_have_the_next_ca() {
        let mut authority = new_authority(HOUR);
        let lead = LEAD;
        let first = authority.bundle();
        let issued_at = start() + HOUR * CA_LIVES * 2 / 3;
        let pending = |authority: &mut Authority, now| authority.step(now, Publication::Pending);
        while authority.next.is_none() {
            let now = authority.due().min(issued_at);
            assert_eq!(pending(&mut authority, now).1, Ok(()));
        }
        // Published a moment before the leaf is due: that leaf is the old CA's yet, and the one after it the new one's.
        let due = authority.due();
        let published = due - lead / 2;
        for (now, is_old) in [(published, true), (due, true), (due + HOUR * 2 / 3, false)] {
            let (_, renewed) = authority.step(now, Publication::Complete);
            assert_eq!(renewed, Ok(()));
            assert_eq!(trusts(&first, authority.leaf(), "hook", now), is_old);
        }
        // One that was taken out of the bundle again counts anew.
        let mut next = NextCa {
            ca: Ca::new(key().unwrap(), HOUR, issued_at).unwrap(),
            published: None,
        };
        next.observe(issued_at, Publication::Complete);
        next.observe(issued_at + lead / 2, Publication::Pending);
        next.observe(issued_at + lead, Publication::Complete);
        assert!(!next.is_ripe(issued_at + lead, lead));
        assert!(next.is_ripe(issued_at + lead * 2, lead));
    }

    #[test]
    fn a_clock_that_is_set_forward_is_survived() {
        let mut authority = new_authority(HOUR);
        let now = start() + HOUR * 1000;
        let changed = stepped(&mut authority, now);
        assert!(changed.leaf && changed.bundle);
        assert!(trusts(&authority.bundle(), authority.leaf(), "hook", now));
    }

    /// The certificates used to be those of a time to come until that time came: API servers refused them for hours or years.
    #[test]
    fn a_clock_that_is_set_back_is_survived() {
        for back in [2 * SKEW, 365 * 24 * HOUR] {
            for since_start in [Duration::ZERO, 720 * HOUR * CA_LIVES * 2 / 3] {
                let mut authority = new_authority(720 * HOUR);
                let before = start() + since_start;
                // At two thirds of the CA's life the next CA exists, too.
                stepped(&mut authority, before);
                let now = start() - back;
                let changed = stepped(&mut authority, now);
                assert!(changed.leaf && changed.bundle);
                let (bundle, leaf) = (authority.bundle(), authority.leaf());
                assert!(trusts(&bundle, leaf, "hook", now));
                // What no leaf needs is not published.
                assert_eq!(certificates(bundle.as_bytes()).unwrap().len(), 1);
                assert_eq!(authority.due(), now + 480 * HOUR);
                assert_eq!(stepped(&mut authority, now), Changed::default());
            }
        }
        // In two steps: the leaf that the first one makes has begun at the second, and its CA has not.
        let mut authority = new_authority(720 * HOUR);
        for now in [start() + 480 * HOUR, start() - 20 * HOUR] {
            assert!(stepped(&mut authority, now).leaf);
        }
        let now = start() - 40 * HOUR;
        let changed = stepped(&mut authority, now);
        assert!(changed.leaf && changed.bundle);
        assert!(trusts(&authority.bundle(), authority.leaf(), "hook", now));
        assert_eq!(stepped(&mut authority, now), Changed::default());
    }

    /// A node's clock that is a zone ahead until its daemon of NTP sets it needs no other certificate.
    #[test]
    fn an_hour_or_a_zone_is_no_matter() {
        for life in [Duration::from_secs(30), 720 * HOUR] {
            let mut authority = new_authority(life);
            let now = start() - 14 * HOUR;
            assert!(trusts(&authority.bundle(), authority.leaf(), "hook", now));
            assert_eq!(stepped(&mut authority, now), Changed::default());
        }
    }

    /// A CA that is older than the clock's fault goes on: clients trust it already.
    #[test]
    fn only_the_certificates_of_the_future_are_made_anew() {
        let mut authority = new_authority(720 * HOUR);
        let first = authority.bundle();
        let ahead = start() + 500 * HOUR;
        assert!(stepped(&mut authority, ahead).leaf);
        let now = start() + HOUR;
        let changed = stepped(&mut authority, now);
        let of_leaf = Changed {
            leaf: true,
            bundle: false,
        };
        assert_eq!(changed, of_leaf);
        assert!(trusts(&first, authority.leaf(), "hook", now));
    }

    #[test]
    fn a_clock_that_starts_in_1970_is_survived() {
        let names = LeafNames::new("hook", "mesh", &[]).unwrap();
        let boot = UNIX_EPOCH + Duration::from_secs(60);
        let mut authority = Authority::new(names, 720 * HOUR, boot).unwrap();
        assert!(trusts(&authority.bundle(), authority.leaf(), "hook", boot));
        assert!(authority.pause(boot) <= MAX_STEP_INTERVAL);
        let changed = stepped(&mut authority, start());
        assert!(changed.leaf && changed.bundle);
        let (bundle, leaf) = (authority.bundle(), authority.leaf());
        assert!(trusts(&bundle, leaf, "hook", start()));
    }

    /// An expired CA used to stay published for as long as no other change came.
    #[test]
    fn a_bundle_that_has_changed_is_told_beside_a_failure() {
        let mut authority = new_authority(HOUR);
        let mut published = authority.bundle();
        while authority.old.is_empty() {
            let now = authority.due();
            if stepped(&mut authority, now).bundle {
                published = authority.bundle();
            }
        }
        let expired = authority.old[0].not_after;
        authority.new_key = || Err("no random numbers".to_owned());
        let (changed, renewed) = authority.step(expired, Publication::Unobserved);
        assert_eq!(renewed, Err("no random numbers".to_owned()));
        assert!(changed.bundle && !changed.leaf);
        assert_ne!(authority.bundle(), published);
        let (changed, renewed) = authority.step(expired, Publication::Unobserved);
        assert!(renewed.is_err());
        assert_eq!(changed, Changed::default());
    }

    #[test]
    fn too_short_a_life_is_refused() {
        let names = LeafNames::new("hook", "mesh", &[]).unwrap();
        assert!(Authority::new(names, Duration::from_secs(2), start()).is_err());
    }
}
