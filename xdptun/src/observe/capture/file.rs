//! The file of a capture: pcapng, with an interface for each side of the programs
//! (draft-ietf-opsawg-pcapng).

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError, PcapResult};
use xdptun_common::wire::LINK_ETHERNET;

use super::VERSION;
use super::packet::{Direction, Packet, Side};
use crate::host::clock::realtime_ahead;
use crate::host::interface::Interface;

/// Nanoseconds, as a power of ten.
const RESOLUTION: u8 = 9;

/// A capture that is being written. The file is complete after every packet.
pub struct CaptureFile<W: Write> {
    writer: PcapNgWriter<W>,
    /// From `CLOCK_MONOTONIC` to the time since the epoch.
    ahead: Duration,
}

impl<W: Write> CaptureFile<W> {
    /// Begins a file with packets of an interface, `snap_len` bytes of each; `behind` is what they
    /// are behind the programs.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn begin(
        out: W,
        interface: &Interface,
        behind: &'static str,
        snap_len: u32,
    ) -> io::Result<Self> {
        let section = SectionHeaderBlock {
            // `PcapNgWriter` writes the times of statistics correctly in this order only.
            endianness: Endianness::Big,
            options: vec![SectionHeaderOption::UserApplication(Cow::Owned(format!(
                "xdptun {VERSION}"
            )))],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(out, section).map_err(io_error)?;
        for side in Side::BOTH {
            let name = format!("{} ({})", interface.name, side.name(behind));
            write(
                &mut writer,
                InterfaceDescriptionBlock {
                    linktype: if interface.link_len == LINK_ETHERNET {
                        DataLink::ETHERNET
                    } else {
                        DataLink::RAW
                    },
                    snaplen: snap_len,
                    options: vec![
                        InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                        InterfaceDescriptionOption::IfTsResol(RESOLUTION),
                    ],
                },
            )?;
        }
        Ok(Self {
            writer,
            ahead: realtime_ahead(),
        })
    }

    /// Writes a packet, on each side on which it appears.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(&mut self, packet: &Packet) -> io::Result<()> {
        for sight in packet.sights() {
            let direction = match sight.direction {
                Direction::Inbound => 1,
                Direction::Outbound => 2,
            };
            let block = EnhancedPacketBlock {
                interface_id: sight.side as u32,
                timestamp: self.ahead + Duration::from_nanos(packet.at),
                original_len: sight.copy.len,
                data: Cow::Borrowed(&sight.copy.bytes),
                options: vec![
                    EnhancedPacketOption::Flags(direction),
                    EnhancedPacketOption::Comment(Cow::Owned(sight.comment)),
                ],
            };
            write(&mut self.writer, block)?;
        }
        Ok(())
    }

    /// Flushes, so that a reader of the file or pipe sees all packets.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }

    /// Ends the file with the number of packets that are missing in it, and the time of its
    /// end in nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn end(mut self, at: u64, missing: u64) -> io::Result<()> {
        let at = self.ahead + Duration::from_nanos(at);
        for side in Side::BOTH {
            let block = InterfaceStatisticsBlock {
                interface_id: side as u32,
                timestamp: at.as_nanos() as u64,
                options: vec![InterfaceStatisticsOption::IsbIfDrop(missing)],
            };
            write(&mut self.writer, block)?;
        }
        self.flush()
    }
}

fn write<'a, W: Write>(
    writer: &mut PcapNgWriter<W>,
    block: impl PcapNgBlock<'a>,
) -> io::Result<()> {
    let written: PcapResult<usize> = writer.write_pcapng_block(block);
    written.map(|_| ()).map_err(io_error)
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}
