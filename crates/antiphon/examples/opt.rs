use antiphon::optimize::*;
use antiphon::schema::Schema;
use antiphon::workload::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (k, b): (usize, usize) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let momentum: f64 = args[3].parse().unwrap();
    let schema = Schema::epochs(k, b).unwrap();
    let n = k * b;
    let rates = if args[4] == "cool" { Some(Cooldown { fraction: 0.25, end: 0.05 }.rates(n).unwrap()) } else { None };
    let workload = Workload::training(n, momentum, rates).unwrap();
    let params = Params { gap: args[5].parse().unwrap(), implicit: args[6] == "implicit", ..Default::default() };
    let t0 = std::time::Instant::now();
    let r = optimize(&schema, &workload, &params, &|p: &Progress| { println!("{:.3} {p:?} gap {:.3e}", t0.elapsed().as_secs_f64(), p.gap()); true });
    match r { Ok(r) => println!("{:?} gap {:.3e} {:?} {} {:?} sqrt {:.6}", r.mechanism.claims, r.mechanism.claims.gap(), r.route, r.iterations, r.elapsed, r.mechanism.claims.loss.sqrt()), Err(e) => println!("ERR {e}") }
}
