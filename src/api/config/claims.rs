//! Claims of tokens that routes of gateways ask for.

/// The prefix by which a header's name stands for a claim.
const CLAIMS: &str = "@request.auth.claims";

/// The claims, each below the one before, that a name of a header in a match stands for: `@request.auth.claims.a.b` or
/// `@request.auth.claims[a][b]`. None: it is a header.
#[must_use]
pub fn claim_path(name: &str) -> Option<Vec<&str>> {
    let (start, rest) = name.split_at_checked(CLAIMS.len())?;
    if !start.eq_ignore_ascii_case(CLAIMS) {
        return None;
    }
    let path: Vec<_> = match rest.strip_prefix('.') {
        Some(names) => names.split('.').collect(),
        None => {
            let names = rest.strip_prefix('[')?.strip_suffix(']')?;
            names.split("][").collect()
        }
    };
    path.iter().all(|name| !name.is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::claim_path;

    #[test]
    fn a_claim_is_named_with_dots_or_in_brackets() {
        for (name, want) in [
            (".sub", Some(&["sub"][..])),
            (".a.b-c", Some(&["a", "b-c"])),
            ("[a.b@c.io][d]", Some(&["a.b@c.io", "d"])),
            (".[a]", Some(&["[a]"])),
            ("", None),
            (".", None),
            (".a.", None),
            (".a..b", None),
            ("[]", None),
            ("[a", None),
            ("[a][]", None),
            ("a", None),
        ] {
            for start in ["@request.auth.claims", "@Request.Auth.CLAIMS"] {
                let name = format!("{start}{name}");
                assert_eq!(claim_path(&name).as_deref(), want, "{name}");
            }
        }
        for header in [
            "x-a",
            "@request.auth.claimants.a",
            "@request.auth.claim\u{df}",
            "",
        ] {
            assert_eq!(claim_path(header), None);
        }
    }
}
