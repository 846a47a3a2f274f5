//! NumPy arrays and PyTorch tensors, in and out.

use crate::errors::{Failure, Result, argument};
use antiphon::linalg::dense::{self, Matrix};
use numpy::{
    BorrowError, Element, PyArray2, PyArrayDyn, PyArrayMethods, PyReadonlyArray2, PyReadonlyArrayDyn,
    PyReadwriteArrayDyn, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use std::ops::Range;

/// A matrix as an array in row-major order.
pub fn to_numpy<'py>(py: Python<'py>, m: &Matrix) -> Bound<'py, PyArray2<f64>> {
    let (rows, columns) = (m.nrows(), m.ncols());
    let mut numbers = vec![0.0; rows * columns];
    for j in 0..columns {
        m.col_as_slice(j).iter().enumerate().for_each(|(i, x)| numbers[i * columns + j] = *x);
    }
    let flat = numpy::PyArray1::from_vec(py, numbers);
    flat.reshape([rows, columns]).expect("as many numbers")
}

/// A matrix from anything that NumPy makes a matrix of floats from.
pub fn to_matrix(value: &Bound<'_, PyAny>, name: &str) -> Result<Matrix> {
    let array = value.py().import("numpy")?.call_method1("asarray", (value, "float64"));
    let array = array.map_err(|_| argument(name, "a matrix of real numbers", described(value)))?;
    let array: PyReadonlyArray2<'_, f64> = array.extract().map_err(|_| {
        let shape = array.getattr("shape").map(|shape| shape.to_string()).unwrap_or_default();
        argument(name, "a matrix (an array of two dimensions)", format!("an array of shape {shape}"))
    })?;
    let view = array.as_array();
    Ok(dense::from_fn(view.nrows(), view.ncols(), |i, j| view[(i, j)]))
}

/// What an object is, for messages.
pub fn described(value: &Bound<'_, PyAny>) -> String {
    let kind = value.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string());
    match value.getattr("dtype") {
        Ok(dtype) => format!("{kind} of {dtype}"),
        Err(_) => kind,
    }
}

/// The array itself, or that of a tensor in the memory of the processor: the same memory, not a copy.
fn array_of<'py>(value: &Bound<'py, PyAny>, name: &str) -> Result<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    let detached = value.call_method0("detach").and_then(|tensor| tensor.call_method0("numpy"));
    match detached.ok().and_then(|array| array.cast_into::<PyUntypedArray>().ok()) {
        Some(array) => Ok(array),
        None => {
            let on = value.getattr("device").map(|device| format!(" on {device}")).unwrap_or_default();
            let allowed = "a NumPy array or a PyTorch tensor on the CPU, of float32 or float64";
            Err(argument(name, allowed, described(value) + &on))
        }
    }
}

/// Numbers that may be written to, in place.
pub enum Writable<'py> {
    Single(PyReadwriteArrayDyn<'py, f32>),
    Double(PyReadwriteArrayDyn<'py, f64>),
}

impl<'py> Writable<'py> {
    pub fn of(value: &Bound<'py, PyAny>, name: &str) -> Result<Writable<'py>> {
        let array = array_of(value, name)?;
        check_order(&array, name)?;
        let any = array.as_any();
        if let Ok(array) = any.cast::<PyArrayDyn<f32>>() {
            return Ok(Writable::Single(array.try_readwrite().map_err(|error| refused(error, name))?));
        }
        if let Ok(array) = any.cast::<PyArrayDyn<f64>>() {
            return Ok(Writable::Double(array.try_readwrite().map_err(|error| refused(error, name))?));
        }
        Err(argument(name, "an array of float32 or float64", array.dtype()))
    }
}

/// Numbers to read, in place.
pub enum Readable<'py> {
    Single(PyReadonlyArrayDyn<'py, f32>),
    Double(PyReadonlyArrayDyn<'py, f64>),
}

impl<'py> Readable<'py> {
    pub fn of(value: &Bound<'py, PyAny>, name: &str) -> Result<Readable<'py>> {
        let array = array_of(value, name)?;
        check_order(&array, name)?;
        let any = array.as_any();
        if let Ok(array) = any.cast::<PyArrayDyn<f32>>() {
            return Ok(Readable::Single(array.try_readonly().map_err(|error| refused(error, name))?));
        }
        if let Ok(array) = any.cast::<PyArrayDyn<f64>>() {
            return Ok(Readable::Double(array.try_readonly().map_err(|error| refused(error, name))?));
        }
        Err(argument(name, "an array of float32 or float64", array.dtype()))
    }

    /// Whether some memory belongs to both. Tensors that share memory are different objects to NumPy.
    pub fn overlaps(&self, other: &PyReadwriteArrayDyn<'_, f64>) -> bool {
        let ours = match self {
            Readable::Single(array) => bytes_of(array.data(), array.len()),
            Readable::Double(array) => bytes_of(array.data(), array.len()),
        };
        let theirs = bytes_of(other.data(), other.len());
        ours.start < theirs.end && theirs.start < ours.end
    }

    /// The length of the first dimension.
    pub fn rows(&self) -> usize {
        let shape = match self {
            Readable::Single(array) => array.shape(),
            Readable::Double(array) => array.shape(),
        };
        shape.first().copied().unwrap_or(0)
    }
}

fn bytes_of<T>(first: *const T, count: usize) -> Range<usize> {
    first as usize..first as usize + count * size_of::<T>()
}

/// The numbers of an array in their order; it was checked that they have one.
pub fn slice<'a, T: Element>(array: &'a PyReadonlyArrayDyn<'_, T>) -> &'a [T] {
    array.as_slice().expect("C-contiguous")
}

/// The same to write to.
pub fn slice_mut<'a, T: Element>(array: &'a mut PyReadwriteArrayDyn<'_, T>) -> &'a mut [T] {
    array.as_slice_mut().expect("C-contiguous")
}

fn check_order(array: &Bound<'_, PyUntypedArray>, name: &str) -> Result<()> {
    let aligned: bool = array.as_any().getattr("flags")?.get_item("ALIGNED")?.extract()?;
    if !aligned {
        return Err(argument(name, "aligned in memory", "an array that is not (make a copy of it)"));
    }
    match array.is_c_contiguous() {
        true => Ok(()),
        false => {
            let got = format!("an array of shape {:?} in another order", array.shape());
            Err(argument(name, "C-contiguous (in row-major order, without gaps)", got))
        }
    }
}

fn refused(error: BorrowError, name: &str) -> Failure {
    match error {
        BorrowError::NotWriteable => argument(name, "writable", "a read-only array"),
        _ => argument(name, "an array that nothing else is writing to", "one that is in use"),
    }
}

/// The numbers of those who take part: any sequence or array of whole numbers.
pub fn to_units(value: &Bound<'_, PyAny>, name: &str) -> Result<Vec<usize>> {
    let allowed = "whole numbers, at least 0";
    let tensor = value.call_method0("detach").and_then(|tensor| tensor.call_method0("cpu"));
    let value = &tensor.and_then(|tensor| tensor.call_method0("numpy")).unwrap_or_else(|_| value.clone());
    let numpy = value.py().import("numpy")?;
    let array = numpy.call_method1("asarray", (value,))?;
    let count: usize = array.getattr("size")?.extract()?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    if kind != "i" && kind != "u" {
        return Err(argument(name, allowed, described(&array)));
    }
    let least: i128 = array.call_method0("min")?.call_method0("item")?.extract()?;
    if least < 0 {
        return Err(argument(name, allowed, least));
    }
    let flat = array.call_method0("ravel")?.call_method1("astype", ("uint64",))?;
    let units: PyReadonlyArrayDyn<'_, u64> = flat.extract()?;
    Ok(slice(&units).iter().map(|unit| *unit as usize).collect())
}
