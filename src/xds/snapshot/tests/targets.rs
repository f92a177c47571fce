//! The services that programs with gRPC in them may call.

use super::*;

/// Names in any case, and addresses of the families that the program has.
#[test]
fn a_target_is_a_name_or_an_address() {
    let mut world = world("");
    let mut b = service("b", &[(80, "GRPC"), (8080, "GRPC")], Resolution::Static);
    at(&mut b, &["10.9.0.1", "2001:db8::1", "10.8.0.0/16"]);
    add(&mut world, b, Vec::new());
    let ports = [(80, "GRPC"), (90, "GRPC")];
    let mut young = service("Mixed.Example", &ports, Resolution::Static);
    young.created = Some(1);
    at(&mut young, &["10.9.0.1", "0.0.0.0"]);
    add(&mut world, young, Vec::new());
    let snapshot = Snapshot::new(world, Arc::new(Settings::default()));
    let [one, both] = [&[][..], &["2001:db8::a"]].map(|more| {
        let mut client = (*node(CLIENT, "NONE")).clone();
        let more = more.iter().map(|address: &&str| address.parse().unwrap());
        client.addresses.extend::<Vec<IpAddr>>(more.collect());
        client.grpc = true;
        snapshot.view(&Arc::new(client))
    });
    let found = |view: &dyn View, target: &str| {
        let found = view.get(Type::Listener, target)?;
        assert_eq!(&*found.name, target);
        let bytes = String::from_utf8_lossy(&found.body).into_owned();
        let known = ["80||b.", "8080||b.", "80||Mixed.", "90||Mixed."];
        known
            .into_iter()
            .find(|known| bytes.contains(&format!("outbound|{known}")))
    };
    for (target, of_one, of_both) in [
        ("B.Demo:8080", Some("8080||b."), Some("8080||b.")),
        ("b.demo.SVC", Some("80||b."), Some("80||b.")),
        ("B:08080", Some("8080||b."), Some("8080||b.")),
        ("mixed.example:90", Some("90||Mixed."), Some("90||Mixed.")),
        ("Mixed.Example", Some("80||Mixed."), Some("80||Mixed.")),
        ("10.9.0.1:8080", Some("8080||b."), Some("8080||b.")),
        // Of two with the port the older.
        ("10.9.0.1:80", Some("80||b."), Some("80||b.")),
        ("10.9.0.1", Some("80||b."), Some("80||b.")),
        ("10.9.0.1:90", Some("90||Mixed."), Some("90||Mixed.")),
        ("[2001:db8::1]:8080", None, Some("8080||b.")),
        ("[2001:DB8:0::1]:80", None, Some("80||b.")),
        ("[2001:db8::1]", None, Some("80||b.")),
        ("2001:db8::1", None, Some("80||b.")),
    ] {
        assert_eq!(found(&*one, target), of_one, "{target}");
        assert_eq!(found(&*both, target), of_both, "{target}");
    }
    for target in [
        "10.9.0.1:81",
        "10.9.0.9:80",
        "10.8.0.1:80",
        "0.0.0.0:80",
        "[2001:db8::1]:81",
        "[2001:db8::1",
        "[10.9.0.1]:80",
        "[]:80",
        ":80",
    ] {
        assert_eq!(found(&*both, target), None, "{target}");
    }
}
