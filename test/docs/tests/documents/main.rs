//! What the documents show and name.

mod architecture;
mod configuration;
mod doctor;
mod embed;
mod help;
mod mentioned;
mod pages;
