//! Infers the types of literals.
//!
//! A literal without a suffix has an unknown type, an integer or a float. Where two types must be equal they are unified: an
//! unknown type becomes the other one. A type that is still unknown at the end of the function is `i32` or `f64`. This is how
//! rustc does it.

use crate::types::{Number, Records, Type};

/// The unknown types of a function.
#[derive(Default)]
pub(super) struct Unknowns(Vec<Unknown>);

#[derive(Clone, Copy)]
enum Unknown {
    Integer,
    Float,
    /// It is the same type as another unknown one.
    Same(usize),
    Known(Number),
}

impl Unknowns {
    pub(super) fn integer(&mut self) -> Type {
        self.0.push(Unknown::Integer);
        Type::Unknown(self.0.len() - 1)
    }

    pub(super) fn float(&mut self) -> Type {
        self.0.push(Unknown::Float);
        Type::Unknown(self.0.len() - 1)
    }

    /// Returns the type as far as it is known.
    pub(super) fn resolve(&self, ty: &Type) -> Type {
        match ty {
            Type::Unknown(index) => match self.0[*index] {
                Unknown::Integer | Unknown::Float => ty.clone(),
                Unknown::Same(other) => self.resolve(&Type::Unknown(other)),
                Unknown::Known(number) => Type::Number(number),
            },
            Type::Array(element, count) => Type::Array(self.resolve(element).into(), *count),
            other => other.clone(),
        }
    }

    /// Returns true if the type is a float, or will be one.
    pub(super) fn is_float(&self, ty: &Type) -> bool {
        match self.resolve(ty) {
            Type::Unknown(index) => matches!(self.0[index], Unknown::Float),
            Type::Number(number) => number.is_float(),
            Type::Half(_) => true,
            _ => false,
        }
    }

    /// Returns true if the type is an integer, or will be one.
    pub(super) fn is_integer(&self, ty: &Type) -> bool {
        matches!(self.resolve(ty), Type::Number(_) | Type::Unknown(_)) && !self.is_float(ty)
    }

    /// Makes two types equal, and returns the common type. Returns `None` if they differ.
    pub(super) fn unify(&mut self, one: &Type, two: &Type) -> Option<Type> {
        match (self.resolve(one), self.resolve(two)) {
            (Type::Never, other) | (other, Type::Never) => Some(other),
            (Type::Unknown(one), Type::Unknown(two)) => {
                let same_kind = matches!(self.0[one], Unknown::Float) == matches!(self.0[two], Unknown::Float);
                if one != two && same_kind {
                    self.0[one] = Unknown::Same(two);
                }
                same_kind.then_some(Type::Unknown(two))
            }
            (Type::Unknown(index), Type::Number(number)) | (Type::Number(number), Type::Unknown(index)) => {
                let fits = matches!(self.0[index], Unknown::Float) == number.is_float();
                if fits {
                    self.0[index] = Unknown::Known(number);
                }
                fits.then_some(Type::Number(number))
            }
            (Type::Array(one, one_count), Type::Array(two, two_count)) if one_count == two_count => {
                Some(Type::Array(self.unify(&one, &two)?.into(), one_count))
            }
            (one, two) => (one == two).then_some(one),
        }
    }

    /// Returns the name of a type for a message.
    pub(super) fn name(&self, records: &Records, ty: &Type) -> String {
        match self.resolve(ty) {
            Type::Unknown(index) => match self.0[index] {
                Unknown::Float => "a float".to_owned(),
                _ => "an integer".to_owned(),
            },
            other => records.name(&other),
        }
    }

    /// Returns the type of each unknown one.
    pub(super) fn finish(&self) -> Vec<Number> {
        let number = |index| match self.resolve(&Type::Unknown(index)) {
            Type::Number(number) => number,
            Type::Unknown(index) if matches!(self.0[index], Unknown::Float) => Number::F64,
            _ => Number::I32,
        };
        (0..self.0.len()).map(number).collect()
    }
}
