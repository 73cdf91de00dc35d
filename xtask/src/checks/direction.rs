//! Dependency direction: gateway → devices → datapath → buffers; lab → judges and demo → testbed, which may use all of these;
//! `polder top` reads what the gateway shows; nothing else. The product has no
//! models of devices.

use serde_json::Value;

/// Permitted dependencies of each package of the workspace, of every kind: normal, dev or build. A
/// package that is not in this table may not be in the workspace.
pub(crate) const MAY_USE: &[(&str, &[&str])] = &[
    ("polder-buffers", &[]),
    ("polder-datapath", &["polder-buffers"]),
    ("polder-devices", &["polder-buffers", "polder-datapath"]),
    ("polder", &["polder-buffers", "polder-datapath", "polder-devices"]),
    ("polder-testbed", &["polder-buffers", "polder-datapath", "polder-devices", "polder"]),
    ("polder-demo", &["polder-buffers", "polder-datapath", "polder-devices", "polder", "polder-testbed"]),
    ("polder-judges", &["polder-buffers", "polder-datapath", "polder-devices", "polder", "polder-testbed"]),
    (
        "polder-lab",
        &[
            "polder-buffers",
            "polder-datapath",
            "polder-devices",
            "polder",
            "polder-testbed",
            "polder-demo",
            "polder-judges",
        ],
    ),
    ("polder-top", &["polder"]),
    ("xtask", &[]),
];

/// The package of the product, and the feature of `polder-devices` that it does without.
const PRODUCT: &str = "polder";
const MODELS: &str = "models";

/// Reads the answer of `cargo metadata --no-deps`; one sentence for each breach.
pub(crate) fn check(metadata: &Value) -> Vec<String> {
    let Some(packages) = metadata["packages"].as_array().filter(|packages| !packages.is_empty()) else {
        return vec!["cargo metadata lists no packages".to_owned()];
    };
    let workspace: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    packages.iter().flat_map(|package| breaches_of(package, &workspace)).collect()
}

fn breaches_of(package: &Value, workspace: &[&str]) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or("a package without a name");
    let Some((_, allowed)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
        return vec![format!(
            "`{name}` is not one of the nine crates and xtask: a further crate needs an ADR"
        )];
    };
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    dependencies.iter().filter_map(|dependency| breach(name, dependency, allowed, workspace)).collect()
}

fn breach(name: &str, dependency: &Value, allowed: &[&str], workspace: &[&str]) -> Option<String> {
    let used = dependency["name"].as_str().unwrap_or("a dependency without a name");
    let inside = workspace.contains(&used);
    let kind = dependency["kind"].as_str().map(|kind| format!("{kind}-")).unwrap_or_default();
    let features = dependency["features"].as_array().map(Vec::as_slice).unwrap_or_default();
    if name == PRODUCT && kind.is_empty() && features.iter().any(|feature| feature == MODELS) {
        return Some(format!(
            "`{name}` has the feature `{MODELS}` of `{used}`, which is for tests and the lab"
        ));
    }
    // A crate's own tests ask for features of it in this way.
    let is_own = used == name && kind == "dev-";
    if (allowed.contains(&used) || is_own) && inside {
        return None;
    }
    if inside {
        let may = if allowed.is_empty() { "no other crate".to_owned() } else { allowed.join(", ") };
        return Some(format!("`{name}` has a {kind}dependency on `{used}`; it may use {may}"));
    }
    dependency["path"]
        .is_string()
        .then(|| format!("`{name}` has a {kind}dependency on `{used}` by a path outside of the workspace"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, kind)| json!({ "name": name, "kind": kind, "path": format!("/x/{name}") }))
            .collect();
        json!({ "name": name, "dependencies": dependencies })
    }

    fn workspace(packages: &[Value]) -> Value {
        json!({ "packages": packages })
    }

    fn lawful() -> Vec<Value> {
        MAY_USE
            .iter()
            .map(|(name, allowed)| {
                let dependencies: Vec<_> = allowed.iter().map(|used| (*used, None)).collect();
                package(name, &dependencies)
            })
            .collect()
    }

    #[test]
    fn everything_that_is_allowed_at_once_is_fine() {
        assert_eq!(check(&workspace(&lawful())), Vec::<String>::new());
    }

    #[test]
    fn a_step_back_is_a_breach_in_every_kind() {
        for kind in [None, Some("dev"), Some("build")] {
            let mut packages = lawful();
            packages[0] = package("polder-buffers", &[("polder-datapath", kind)]);
            let found = check(&workspace(&packages));
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("`polder-buffers`"), "{found:?}");
            assert!(found[0].contains(kind.unwrap_or("a dependency")), "{found:?}");
        }
    }

    #[test]
    fn the_gateway_does_not_use_the_lab_and_nobody_uses_the_tool() {
        let mut packages = lawful();
        packages[3] = package("polder", &[("polder-lab", Some("dev"))]);
        packages[7] = package("polder-lab", &[("xtask", None)]);
        assert_eq!(check(&workspace(&packages)).len(), 2);
    }

    #[test]
    fn the_product_has_no_models_and_its_tests_may() {
        for (kind, breaches) in [(None, 1), (Some("dev"), 0)] {
            let mut packages = lawful();
            packages[3] = json!({
                "name": "polder",
                "dependencies": [{ "name": "polder-devices", "kind": kind, "features": ["models"] }],
            });
            assert_eq!(check(&workspace(&packages)).len(), breaches, "{kind:?}");
        }
        let mut packages = lawful();
        packages[2] = package("polder-devices", &[("polder-devices", Some("dev"))]);
        assert_eq!(check(&workspace(&packages)), Vec::<String>::new());
    }

    #[test]
    fn a_sixth_crate_and_a_path_outside_are_named() {
        let mut packages = lawful();
        packages.push(package("polder-extras", &[]));
        packages[1] = package("polder-datapath", &[("elsewhere", None)]);
        let found = check(&workspace(&packages));
        assert!(found.iter().any(|text| text.contains("polder-extras")), "{found:?}");
        assert!(found.iter().any(|text| text.contains("elsewhere")), "{found:?}");
    }

    #[test]
    fn packages_of_the_registry_are_not_our_business() {
        let mut packages = lawful();
        packages[0] = json!({
            "name": "polder-buffers",
            "dependencies": [{ "name": "thiserror", "kind": null, "source": "registry" }],
        });
        assert_eq!(check(&workspace(&packages)), Vec::<String>::new());
    }

    #[test]
    fn an_empty_answer_is_a_breach() {
        assert_eq!(check(&json!({})).len(), 1);
    }
}
