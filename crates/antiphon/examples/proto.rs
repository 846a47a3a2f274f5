use antiphon::optimize::*;
use antiphon::optimize::{anderson::Anderson, blocks::BlockDual, resolvent::Resolvent};
use antiphon::linalg::dense as d;
use antiphon::schema::Schema;
use antiphon::workload::*;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (k, b): (usize, usize) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let momentum: f64 = args[3].parse().unwrap();
    let iters: usize = args[4].parse().unwrap();
    let mem: usize = args[5].parse().unwrap();
    let round: bool = args[6] == "round";
    let schema = Schema::epochs(k, b).unwrap();
    let n = k * b;
    let rates = if momentum > 0.0 { Some(Cooldown { fraction: 0.25, end: 0.05 }.rates(n).unwrap()) } else { None };
    let workload = Workload::training(n, momentum, rates).unwrap();
    let mut route = Resolvent::new(&schema, &workload).unwrap();
    let mut dual = BlockDual::identity(schema.listed().unwrap());
    let mut an = Anderson::new(mem);
    let mut best = 0.0;
    let mut plain: Option<BlockDual> = None;
    let t0 = Instant::now();
    for it in 0..iters {
        let t = Instant::now();
        let rule = route.rule(&dual, 1e-5).unwrap();
        let t1 = t.elapsed().as_secs_f64();
        let (grams, invs) = route.blocks(&dual, &rule);
        let t2 = t.elapsed().as_secs_f64();
        let a = dual.inner_product(&grams);
        let lb = a * a / dual.total();
        if lb < best * (1.0 - 1e-10) { if let Some(p) = plain.take() { println!("{it} revert {lb} < {best}"); dual = p; an.clear(); continue; } }
        best = lb;
        let sens = grams.iter().map(|x| x.iter().map(|x| x.abs()).sum::<f64>()).fold(0.0, f64::max);
        let loss = a * sens;
        print!("{it} lb {lb:.4} crude gap {:.3e} nodes {} rule {:.4} blocks {:.4}", loss / lb - 1.0, rule.nodes.len(), t1, t2 - t1);
        let mut pred = 0.0; let mut first = 0.0; let mut second = 0.0;
        for r in 0..grams.len() { let u = dual.block(r); let x = &grams[r]; let kk = (x.len() as f64).sqrt() as usize;
            let tr = |m: &[f64]| -> f64 { (0..kk).map(|i| m[i*kk+i]).sum() };
            let dd: f64 = tr(x); let off: Vec<f64> = x.iter().enumerate().map(|(e, v)| if e % (kk+1) == 0 { 0.0 } else { *v }).collect();
            use blocks::product;
            let ar = tr(&product(&u, x)); let f = tr(&product(&u, &off)); let s = tr(&product(&product(&product(&off, &u), &off), &invs[r]));
            pred += dd * (ar + f + s); first += dd*f; second += dd*s; }
        print!(" pred {:.3e} ({:.1e} {:.1e})", pred / lb - 1.0, first/lb, second/lb);
        if round {
            let t = Instant::now();
            let mut x = route.dense_reversed(&dual, &rule, |_, _| ());
            let tf = t.elapsed().as_secs_f64();
            let mut scale = vec![0.0; n];
            for p in &dual.patterns { let s: f64 = p.iter().map(|i| x[(n-1-i, n-1-i)]).sum(); for i in p { scale[n-1-*i] = 1.0 / s.sqrt(); }
                for i in p { for j in p { if i != j { x[(n-1-i, n-1-j)] = 0.0; } } } }
            for j in 0..n { for i in 0..n { x[(i, j)] *= scale[i] * scale[j]; } }
            let tc = t.elapsed().as_secs_f64();
            if d::cholesky_in_place(&mut x).is_ok() {
                let td = t.elapsed().as_secs_f64();
                let inv = d::lower_inverse(&x).unwrap();
                let te = t.elapsed().as_secs_f64();
                let w = d::from_fn(n, n, |i, j| inv[(n-1-j, n-1-i)]);
                let l = d::squared_norm(&workload.apply(&w));
                print!(" rounded gap {:.3e}  form {:.3} scale {:.3} chol {:.3} inv {:.3} rest {:.3}", l / lb - 1.0, tf, tc - tf, td - tc, te - td, t.elapsed().as_secs_f64() - te);
            } else { print!(" chol failed"); }
        }
        println!();
        let t = Instant::now();
        let new = dual.update(&grams);
        let t1 = t.elapsed().as_secs_f64();
        let x = an.step(dual.coordinates(), new.coordinates());
        dual = if mem > 0 { new.at_coordinates(&x) } else { new.clone() };
        plain = Some(new);
        if it == 3 { println!("update {:.4} anderson {:.4}", t1, t.elapsed().as_secs_f64() - t1); }
    }
    println!("total {:.3}", t0.elapsed().as_secs_f64());
}
