//! Coefficients of the transform, lowest first. Made by polynomials.py, which has the method; not by hand.

// One of them is π/4, rounded as its method says.
#![allow(clippy::approx_constant)]

/// −2 ln(1 − y)/y in y, for y in [0, 1/2]; relative error 2.4e-8, 0.41 times half a unit in the last place.
#[rustfmt::skip]
pub const LOG_F32: [f32; 9] = [
    2.0,
    0.99999046,
    0.6672631,
    0.48738214,
    0.527259,
    -0.3614393,
    2.4165199,
    -3.2783566,
    2.8288548,
];

/// sin(πx/4)/x in x², for x in [0, 1]; relative error 2.8e-8, 0.47 times half a unit in the last place.
#[rustfmt::skip]
pub const SIN_F32: [f32; 4] = [
    0.7853982,
    -0.08074583,
    0.0024910164,
    -3.660909e-05,
];

/// cos(πx/4) in x², for x in [0, 1]; relative error 4.4e-10, 0.0073 times half a unit in the last place.
#[rustfmt::skip]
pub const COS_F32: [f32; 5] = [
    1.0,
    -0.30842513,
    0.015854284,
    -0.0003258687,
    3.4940856e-06,
];

/// −2 ln(1 − y)/y in y, for y in [0, 1/2]; relative error 1.3e-17, 0.12 times half a unit in the last place.
#[rustfmt::skip]
pub const LOG_F64: [f64; 21] = [
    2.0,
    0.999999999999985,
    0.666666666671937,
    0.499999999347579,
    0.40000004120991606,
    0.33333176707208795,
    0.2857536184570903,
    0.24930740925768904,
    0.23112269105448355,
    0.1141813593477741,
    0.8146025960211213,
    -3.446186099098241,
    16.237512675961874,
    -55.787781557012494,
    151.52355468768127,
    -315.6726556015809,
    498.45032581354866,
    -576.1210440605292,
    461.93101364417515,
    -230.1932228829519,
    54.44186523967716,
];

/// sin(πx/4)/x in x², for x in [0, 1]; relative error 4.0e-17, 0.36 times half a unit in the last place.
#[rustfmt::skip]
pub const SIN_F64: [f64; 7] = [
    0.7853981633974483,
    -0.0807455121882785,
    0.0024903945701648445,
    -3.657620405601661e-05,
    3.133614233299863e-07,
    -1.7569724375970293e-09,
    6.8179944370283785e-12,
];

/// cos(πx/4) in x², for x in [0, 1]; relative error 3.1e-19, 0.0028 times half a unit in the last place.
#[rustfmt::skip]
pub const COS_F64: [f64; 8] = [
    1.0,
    -0.30842513753404244,
    0.015854344243815106,
    -0.00032599188692470266,
    3.5908604399702944e-06,
    -2.461135492851959e-08,
    1.149983905393834e-10,
    -3.838741503178736e-13,
];
