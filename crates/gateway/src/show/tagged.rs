//! Deserialization in one pass of structures with a variant among their fields.
//!
//! Serde's `flatten` stores all fields before it reads the first one, so a view of ten thousand rows would be
//! built twice.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer as _, MapAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

/// Deserializes the value of the field `key` as the variant with that name.
pub(crate) fn variant<'de, T, M>(key: &str, map: &mut M) -> Result<T, M::Error>
where
    T: Deserialize<'de>,
    M: MapAccess<'de>,
{
    T::deserialize(Field { key, map })
}

/// A field whose name is the variant's.
struct Field<'f, M> {
    key: &'f str,
    map: &'f mut M,
}

impl<'de, M: MapAccess<'de>> Deserializer<'de> for Field<'_, M> {
    type Error = M::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, M::Error> {
        visitor.visit_enum(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, M: MapAccess<'de>> EnumAccess<'de> for Field<'_, M> {
    type Error = M::Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), M::Error> {
        Ok((seed.deserialize(self.key.into_deserializer())?, self))
    }
}

impl<'de, M: MapAccess<'de>> VariantAccess<'de> for Field<'_, M> {
    type Error = M::Error;

    fn unit_variant(self) -> Result<(), M::Error> {
        Err(M::Error::invalid_type(Unexpected::NewtypeVariant, &"unit variant"))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, M::Error> {
        self.map.next_value_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, M::Error> {
        Err(M::Error::invalid_type(Unexpected::NewtypeVariant, &"tuple variant"))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, M::Error> {
        Err(M::Error::invalid_type(Unexpected::NewtypeVariant, &"struct variant"))
    }
}
