//! The types of values, as docs/configuration.md shows them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::config::{
    ClientNetwork, Fixed, Inside, Listen, Mtu, Pattern, PeerConfig, Pool, Prefix, Secrets, Source,
    Time, To, UpTo, Veil,
};
use crate::host::ports::PortRange;

impl<const MOST: u32, const DEFAULT: u32> JsonSchema for Time<MOST, DEFAULT> {
    fn schema_name() -> Cow<'static, str> {
        "time".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": MOST, "unit": "seconds" })
    }
}

impl<const MOST: u32, const DEFAULT: u32> JsonSchema for UpTo<MOST, DEFAULT> {
    fn schema_name() -> Cow<'static, str> {
        "number".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": MOST })
    }
}

impl JsonSchema for Mtu {
    fn schema_name() -> Cow<'static, str> {
        "mtu".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": Mtu::LEAST, "maximum": Mtu::MOST })
    }
}

impl JsonSchema for Veil {
    fn schema_name() -> Cow<'static, str> {
        "veil".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": format!("0 to {}", Veil::MOST), "unit": "bytes" })
    }
}

impl JsonSchema for Prefix {
    fn schema_name() -> Cow<'static, str> {
        "prefix".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "network of 32, 40, 48, 56, 64 or 96 bits" })
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Pool {
    fn schema_name() -> Cow<'static, str> {
        "pool".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "network of 16 to 30 bits" })
    }
}

impl Serialize for Pool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ClientNetwork {
    fn schema_name() -> Cow<'static, str> {
        "client-network".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "networks (`\"fd00:6::/64\"`) and addresses" })
    }
}

impl JsonSchema for Fixed {
    fn schema_name() -> Cow<'static, str> {
        "fixed".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "`\"100.64.0.9=fd00:6::9\"`" })
    }
}

impl JsonSchema for Listen {
    fn schema_name() -> Cow<'static, str> {
        "listen".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "`7000`, `\"8000-8009/tcp\"`, `\"203.0.113.7:443/udp\"`" })
    }
}

impl JsonSchema for To {
    fn schema_name() -> Cow<'static, str> {
        "to".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "`\"10.0.0.5:7000\"`, with a weight `\"10.0.0.5:7000=3\"`" })
    }
}

impl JsonSchema for Source {
    fn schema_name() -> Cow<'static, str> {
        "source".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "`\"keep\"`, `\"masquerade\"`, `\"203.0.113.7\"`, `\"203.0.113.7:20000-29999\"`"
        })
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Inside {
    fn schema_name() -> Cow<'static, str> {
        "inside".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "networks (`\"192.168.7.0/24\"`) and addresses" })
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for PortRange {
    fn schema_name() -> Cow<'static, str> {
        "port".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "ports (`51820`) and ranges (`\"8000-8010\"`)" })
    }
}

impl JsonSchema for PeerConfig {
    fn schema_name() -> Cow<'static, str> {
        "peer".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        let title = "addresses, networks and host names, \
                     also as `{ peer = \"203.0.113.7\", secret = \"PATH\" }` or with \
                     `compat = \"phantun\"`";
        json_schema!({ "title": title })
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "pattern".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "texts (`\"EVIL\"`) and bytes (`\"hex:00ff\"`)" })
    }
}

impl JsonSchema for Secrets {
    fn schema_name() -> Cow<'static, str> {
        "secrets".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "title": "path, or list of one to four" })
    }
}
