//! A selection of the ports of a world: a bit for each.

use std::sync::Arc;

use super::{Index, ServicePorts};

const BITS: usize = u64::BITS as usize;

pub(super) fn bit(bits: &[u64], at: usize) -> bool {
    let word = bits.get(at / BITS).copied().unwrap_or_default();
    word >> (at % BITS) & 1 == 1
}

fn set(bits: &mut [u64], at: usize) {
    if let Some(word) = bits.get_mut(at / BITS) {
        *word |= 1 << (at % BITS);
    }
}

/// Ports of an index that are being chosen.
pub(super) struct Selection<'a> {
    pub(super) index: &'a Arc<Index>,
    pub(super) visible: Vec<u64>,
    pub(super) size: usize,
}

impl<'a> Selection<'a> {
    /// Creates a selection of no ports of this index.
    pub(super) fn of(index: &'a Arc<Index>) -> Self {
        Self {
            index,
            visible: vec![0; index.all.len().div_ceil(BITS)],
            size: 0,
        }
    }

    pub(super) fn add(&mut self, at: usize) {
        set(&mut self.visible, at);
        let own = self.index.sizes.get(at).copied().unwrap_or_default();
        self.size = self.size.saturating_add(own);
    }

    pub(super) fn has(&self, at: usize) -> bool {
        bit(&self.visible, at)
    }

    pub(super) fn ports(self) -> ServicePorts {
        ServicePorts {
            index: self.index.clone(),
            visible: self.visible.into(),
            size: self.size,
        }
    }
}
