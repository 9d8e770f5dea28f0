//! Types that can be copied from and to raw bytes.

/// A value without padding or invalid bit patterns: any bytes of the right
/// length are a value of it.
///
/// # Safety
///
/// The type must be `repr(C)` or `repr(transparent)`, have no padding bytes,
/// and hold only integers and arrays of integers.
pub unsafe trait Plain: Copy + 'static {}

// SAFETY: an integer has no padding and no invalid values.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: nor has a row of them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

macro_rules! plain {
    ($($type:ty: $size:literal),+ $(,)?) => {$(
        // SAFETY: declared `repr(C)` over integers only; the size below equals
        // the sum of the fields, so there is no padding.
        unsafe impl $crate::Plain for $type {}
        const _: () = assert!(core::mem::size_of::<$type>() == $size);
    )+};
}
pub(crate) use plain;

/// Writes `from_raw` of an enum: the variant that is stored as a number, or with `else`
/// what a number counts as that no version wrote. Every variant has to be named.
macro_rules! from_raw {
    (
        @ $(#[$doc:meta])* $vis:vis $type:ident: $raw:ident { $($variant:ident),+ $(,)? }
        -> $result:ty, $found:path, $unknown:expr
    ) => {
        impl $type {
            $(#[$doc])*
            #[inline(always)]
            #[must_use]
            $vis const fn from_raw(value: $raw) -> $result {
                $(if value == Self::$variant as $raw {
                    return $found(Self::$variant);
                })+
                $unknown
            }
        }
        const _: fn($type) = |value| match value {
            $($type::$variant => {})+
        };
    };
    (
        $(#[$doc:meta])* $vis:vis $type:ident: $raw:ident { $($variants:tt)+ }
    ) => {
        $crate::plain::from_raw!(
            @ $(#[$doc])* $vis $type: $raw { $($variants)+ } -> Option<Self>, Some, None
        );
    };
    (
        $(#[$doc:meta])* $vis:vis $type:ident: $raw:ident { $($variants:tt)+ }
        else $other:ident
    ) => {
        $crate::plain::from_raw!(
            @ $(#[$doc])* $vis $type: $raw { $($variants)+ }
            -> Self, core::convert::identity, Self::$other
        );
    };
}
pub(crate) use from_raw;

/// The bytes of a value, as they lie in memory.
pub const fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so every byte is initialised; the length
    // is that of the value, and the borrow keeps it alive.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads a value from the start of `bytes`; `None` if they are too few.
pub fn read_plain<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: the length is checked, the read needs no alignment, and `Plain`
    // accepts every bit pattern.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
