use super::*;
use proptest::prelude::*;
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use std::time::Duration;

/// A CA of that name, valid from the beginning of one year to that of another, as PEM.
fn ca(name: &str, from: i32, to: i32) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    let key = KeyPair::generate().unwrap();
    params
        .self_signed(&key)
        .unwrap()
        .pem()
        .replace("\r\n", "\n")
}

fn own_ca(from: i32, to: i32) -> String {
    ca(OWN_CA_NAME, from, to)
}

/// The beginning of a year, about.
fn year(year: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((year - 1970) * 365 * 86_400 + 86_400 * 20)
}

fn wanted(present: &str, own: &str, now: u64) -> Option<String> {
    CaBundle::Own(own.into())
        .replacement(present.as_bytes(), year(now))
        .map(|pem| String::from_utf8(pem).unwrap())
}

/// Few, so that a test fills them.
const FEW: BundleLimits = BundleLimits {
    certificates: 8,
    bytes: usize::MAX,
};

fn wanted_within(limits: BundleLimits, present: &str, own: &str) -> Option<String> {
    shared(present.as_bytes(), own.as_bytes(), year(2026), limits)
        .map(|pem| String::from_utf8(pem).unwrap())
}

#[test]
fn a_file_is_written_as_it_is() {
    let file = CaBundle::File(b"# a comment\npem".to_vec());
    assert_eq!(file.replacement(b"# a comment\npem", year(2026)), None);
    assert_eq!(
        file.replacement(b"# a comment\npem\n", year(2026)),
        Some(b"# a comment\npem".to_vec())
    );
}

#[test]
fn certificates_of_others_stay_in_the_bundle() {
    let (own, other, stranger) = (
        own_ca(2026, 2027),
        own_ca(2025, 2027),
        ca("corporate", 2020, 2021),
    );
    let all = format!("{stranger}{other}{own}");
    // Certificates of other programs are left alone, expired or not.
    assert_eq!(
        wanted(&format!("{stranger}{other}"), &own, 2026),
        Some(all.clone())
    );
    assert_eq!(wanted(&all, &own, 2026), None);
    assert_eq!(wanted("", &own, 2026), Some(own.clone()));
    // A chart leaves a bundle of one newline before it is filled.
    assert_eq!(wanted("\n", &own, 2026), Some(own));
}

#[test]
fn lines_and_comments_are_no_difference() {
    let own = own_ca(2026, 2027);
    let other = ca("corporate", 2020, 2021);
    for present in [
        format!("{other}{own}").replace('\n', "\r\n"),
        format!("# made by hand\n{other}\n\n{own}"),
        format!("{other}-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n{own}"),
    ] {
        assert_eq!(wanted(&present, &own, 2026), None, "{present}");
    }
}

#[test]
fn a_broken_certificate_hides_no_other() {
    let (own, other) = (own_ca(2026, 2027), ca("corporate", 2020, 2030));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA";
    let unread = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(
        wanted(&format!("{broken}\n{key}{other}{unread}"), &own, 2026),
        // DER that this parser rejects is kept: a more lenient reader may accept it.
        Some(format!("{other}{unread}{own}"))
    );
}

#[test]
fn ours_that_expired_go() {
    let (own, expired, valid) = (own_ca(2026, 2028), own_ca(2020, 2021), own_ca(2025, 2030));
    assert_eq!(
        wanted(&format!("{expired}{valid}{own}"), &own, 2026),
        Some(format!("{valid}{own}"))
    );
    // Our own too, once it has: its successor is beside it.
    let next = own_ca(2027, 2030);
    let both = format!("{own}{next}");
    assert_eq!(wanted(&both, &both, 2027), None);
    assert_eq!(wanted(&both, &both, 2028), Some(next));
}

#[test]
fn the_newest_of_ours_stay() {
    let others: Vec<String> = (2010..2018).map(|from| own_ca(from, 2030)).collect();
    let stranger = ca("corporate", 2000, 2030);
    let own = own_ca(2020, 2030);
    let present = format!("{stranger}{}", others.concat());
    let expected = format!("{stranger}{}{own}", others[1..].concat());
    let few_bytes = BundleLimits {
        certificates: usize::MAX,
        bytes: certificates((others[1..].concat() + &own).as_bytes())
            .iter()
            .map(Vec::len)
            .sum(),
    };
    for limits in [FEW, few_bytes] {
        assert_eq!(
            wanted_within(limits, &present, &own),
            Some(expected.clone())
        );
        assert_eq!(wanted_within(limits, &expected, &own), None);
    }
}

#[test]
fn dead_replicas_push_no_live_one_out_of_the_bundle() {
    // Two replicas that live on, and a third that started again and again.
    let (first, second) = (own_ca(2005, 2030), own_ca(2006, 2030));
    let dead: Vec<String> = (2010..2018).map(|from| own_ca(from, 2030)).collect();
    let mut bundle = format!("{first}{second}{}", dead.concat());
    let mut written = 0;
    for _ in 0..10 {
        for own in [&first, &second] {
            if let Some(next) = wanted_within(FEW, &bundle, own) {
                bundle = next;
                written += 1;
            }
        }
    }
    assert!(bundle.contains(&first) && bundle.contains(&second));
    assert!(bundle.contains(&dead[7]));
    assert!(written <= 4, "{written}");
}

/// Nine replicas, and five that renew their CA, used to evict each other's certificates with every repair, for ever.
#[test]
fn no_replica_evicts_a_live_one() {
    for (replicas, of_each) in [(9, 1), (5, 2), (16, 3)] {
        let replicas: Vec<String> = (0..replicas)
            .map(|_| (0..of_each).map(|_| own_ca(2025, 2030)).collect())
            .collect();
        let mut bundle = String::new();
        for own in &replicas {
            bundle = wanted(&bundle, own, 2026).unwrap();
        }
        for own in &replicas {
            assert_eq!(wanted(&bundle, own, 2026), None);
        }
        assert_eq!(
            certificates(bundle.as_bytes()).len(),
            replicas.len() * of_each
        );
    }
}

#[test]
fn two_of_the_same_are_one() {
    let (own, other) = (own_ca(2026, 2027), ca("corporate", 2020, 2030));
    let expected = Some(format!("{other}{own}"));
    assert_eq!(
        wanted(&format!("{other}{other}{own}"), &own, 2026),
        expected
    );
    assert_eq!(wanted(&format!("{other}{other}"), &own, 2026), expected);
}

fn pool() -> &'static [String] {
    static POOL: std::sync::LazyLock<Vec<String>> = std::sync::LazyLock::new(|| {
        let ours = (0..12).map(|n| own_ca(2010 + n % 7, if n % 4 == 3 { 2025 } else { 2030 }));
        let others = (0..3).map(|n| ca(&format!("other {n}"), 2020, 2022));
        ours.chain(others).collect()
    });
    &POOL
}

fn chosen(picks: &[usize]) -> String {
    picks.iter().map(|pick| pool()[*pick].as_str()).collect()
}

proptest! {
    /// Replicas that reconcile one after the other converge from any bundle, and each then has its own certificate there.
    #[test]
    fn replicas_come_to_rest(
        present in prop::collection::vec(0..15_usize, 0..20),
        own in prop::collection::btree_set(0..12_usize, 1..6),
    ) {
        let replicas: Vec<String> = own.iter().map(|pick| chosen(&[*pick])).collect();
        let mut bundle = chosen(&present);
        let of_others = |bundle: &str| -> Vec<Vec<u8>> {
            certificates(bundle.as_bytes())
                .into_iter()
                .filter(|der| issuer(der, year(2026)) == CertificateIssuer::ByOthers)
                .collect()
        };
        let others_before = of_others(&bundle);
        let mut written = 0;
        let mut quiet = 0;
        while quiet < replicas.len() {
            for own in &replicas {
                match wanted_within(FEW, &bundle, own) {
                    Some(next) => {
                        prop_assert_eq!(wanted_within(FEW, &next, own), None, "its own work is not mended");
                        (bundle, quiet, written) = (next, 0, written + 1);
                    }
                    None => quiet += 1,
                }
            }
            prop_assert!(written <= replicas.len() + FEW.certificates, "they do not rest");
        }
        let after = certificates(bundle.as_bytes());
        prop_assert!(after.iter().all(|der| issuer(der, year(2026)) != CertificateIssuer::Expired));
        let ours = after.iter().filter(|der| issuer(der, year(2026)) == CertificateIssuer::ByReplica);
        prop_assert!(ours.count() <= FEW.certificates);
        prop_assert!(others_before.iter().all(|other| after.contains(other)));
        for (own, pick) in replicas.iter().zip(&own) {
            let expired = pick % 4 == 3;
            prop_assert_eq!(after.contains(&certificates(own.as_bytes())[0]), !expired);
        }
    }

    #[test]
    fn any_bytes_are_read(present in prop::collection::vec(any::<u8>(), 0..200), text in "(-----BEGIN CERTIFICATE-----|-----END CERTIFICATE-----|AAAA|\n){0,12}") {
        let own = CaBundle::Own(pool()[0].clone().into_bytes());
        for present in [&present, text.as_bytes()] {
            let next = own.replacement(present, year(2026)).unwrap();
            prop_assert_eq!(own.replacement(&next, year(2026)), None);
        }
    }
}
