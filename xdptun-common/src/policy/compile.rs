//! Patterns become a table.

use super::table::{
    BUCKETS, Entry, MAX_ENTRIES, MAX_GRAM, MAX_PATTERN, MAX_PATTERNS, MAX_STRIDE, Table, hash,
};

/// Why patterns cannot become a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is none.
    NoPattern,
    /// There are more than [`MAX_PATTERNS`]; so many.
    TooMany(usize),
    /// One has no byte.
    Empty,
    /// One has more than [`MAX_PATTERN`] bytes; so many.
    TooLong(usize),
}

/// Puts patterns into a table, in the place of those that it has. ASCII letters match in either
/// case if `ignore_case` says so.
///
/// # Errors
///
/// If there is no pattern or too many, or one is empty or too long.
pub fn compile(table: &mut Table, patterns: &[&[u8]], ignore_case: bool) -> Result<(), Refusal> {
    let shortest = check(patterns)?;
    let stride = stride_for(shortest);
    let gram = MAX_GRAM.min(shortest + 1 - stride);
    *table = Table::EMPTY;
    table.mask = u32::MAX >> (8 * (MAX_GRAM - gram));
    table.fold = if ignore_case { 0x2020_2020 } else { 0 };
    table.stride = stride as u32;
    table.count = patterns.len() as u32;
    let mut entries = [Entry::default(); MAX_ENTRIES];
    let mut used = 0;
    for (number, bytes) in patterns.iter().enumerate() {
        let mut folded = [0; MAX_PATTERN];
        let folded = &mut folded[..bytes.len()];
        folded.copy_from_slice(bytes);
        if ignore_case {
            folded.make_ascii_lowercase();
        }
        table.lens[number] = bytes.len() as u8;
        for (word, bytes) in table.patterns[number].iter_mut().zip(folded.chunks(8)) {
            *word = word_of(bytes);
        }
        let first = rarest(folded, stride, gram);
        for offset in first..first + stride {
            entries[used] = Entry {
                gram: table.gram(word_of(&folded[offset..offset + gram]) as u32),
                pattern: number as u8,
                offset: offset as u8,
                len: bytes.len() as u8,
                reserved: 0,
            };
            used += 1;
        }
    }
    fill_buckets(table, &mut entries[..used]);
    Ok(())
}

/// The patterns of a table, as they were folded when it was made: each with its padding, and its
/// length.
pub fn patterns(table: &Table) -> impl Iterator<Item = ([u8; MAX_PATTERN], usize)> {
    let all = table.patterns.iter().zip(table.lens);
    all.take(table.count as usize).map(|(words, len)| {
        let mut bytes = [0; MAX_PATTERN];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        (bytes, usize::from(len).min(MAX_PATTERN))
    })
}

/// Checks patterns; the length of the shortest.
fn check(patterns: &[&[u8]]) -> Result<usize, Refusal> {
    if patterns.len() > MAX_PATTERNS {
        return Err(Refusal::TooMany(patterns.len()));
    }
    let lens = patterns.iter().map(|pattern| pattern.len());
    if let Some(len) = lens.clone().find(|len| *len > MAX_PATTERN) {
        return Err(Refusal::TooLong(len));
    }
    match lens.min() {
        None => Err(Refusal::NoPattern),
        Some(0) => Err(Refusal::Empty),
        Some(shortest) => Ok(shortest),
    }
}

/// The largest stride with which each occurrence of a pattern of this length has a gram of two
/// bytes at a place that is looked at.
const fn stride_for(shortest: usize) -> usize {
    let mut stride = MAX_STRIDE;
    while stride > 1 && stride + 1 > shortest {
        stride /= 2;
    }
    stride
}

/// Where in a pattern the grams of `stride` places begin that are least common in payloads.
fn rarest(pattern: &[u8], stride: usize, gram: usize) -> usize {
    let commonness = |first: usize| -> u32 {
        let grams = pattern[first..].windows(gram).take(stride);
        let of_gram = |bytes: &[u8]| bytes.iter().map(|byte| common(*byte)).min();
        grams.map(|bytes| of_gram(bytes).unwrap_or(0)).sum()
    };
    let places = 0..=pattern.len() + 1 - stride - gram;
    places.min_by_key(|first| commonness(*first)).unwrap_or(0)
}

/// How common a byte is in payloads, roughly. A wrong guess costs time only.
const fn common(byte: u8) -> u32 {
    match byte {
        0 => 12,
        b' ' | b'e' | b't' => 9,
        b'a' | b'i' | b'n' | b'o' | b'r' | b's' => 7,
        b'a'..=b'z' | b'\r' | b'\n' => 5,
        b'0'..=b'9' | 0xff => 4,
        b'-' | b'.' | b'/' | b':' | b'=' | b'"' | b',' | b';' => 4,
        b'A'..=b'Z' => 3,
        _ => 1,
    }
}

/// Puts entries into buckets: those with one hash into one, hashes in turn.
fn fill_buckets(table: &mut Table, entries: &mut [Entry]) {
    let mut next = 0;
    for entry in &*entries {
        let bucket = &mut table.buckets[hash(entry.gram)];
        if *bucket == 0 {
            *bucket = (1 + next % (BUCKETS - 1)) as u8;
            next += 1;
        }
    }
    entries.sort_unstable_by_key(|entry| (table.bucket(entry.gram), entry.pattern, entry.offset));
    let mut place = 0;
    for bucket in 1..BUCKETS {
        table.starts[bucket] = place;
        while entries
            .get(usize::from(place))
            .is_some_and(|entry| usize::from(table.bucket(entry.gram)) == bucket)
        {
            place += 1;
        }
    }
    table.starts[BUCKETS..].fill(place);
    table.entries[..entries.len()].copy_from_slice(entries);
}

/// Up to eight bytes as a little-endian word.
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
