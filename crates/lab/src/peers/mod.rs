//! Other forwarders, measured beside Polder: started and stopped by the lab, skipped loudly when absent.

pub mod testpmd;
