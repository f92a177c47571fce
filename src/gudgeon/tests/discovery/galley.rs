//! A galley beside a discovery, over a directory.

use std::path::Path;

use crate::place::gudgeon;
use crate::support::program::{Program, is_a_program};

pub struct PeerGalley {
    program: Program,
}

is_a_program!(PeerGalley);

impl PeerGalley {
    /// Without certificates.
    pub fn plain(config: &Path, address: &str) -> Self {
        let address = format!("--server-address={address}");
        Self::start(config, &["--insecure", &address])
    }

    pub fn start(config: &Path, more: &[&str]) -> Self {
        let program = Program::start(
            gudgeon()
                .args(["galley", "--monitoringPort=0", "--ctrlz_port=0"])
                .args(["--livenessProbePath=", "--readinessProbePath="])
                .args(["--drainDuration=0s", "--enable-validation=false"])
                .arg("--configPath")
                .arg(config)
                .args(more)
                .env_clear(),
        );
        Self { program }
    }

    /// Returns the address of the MCP listener.
    pub fn address(&mut self) -> String {
        let address = self.address_after("listening on mcp");
        address.split_once("://").unwrap().1.to_owned()
    }
}
