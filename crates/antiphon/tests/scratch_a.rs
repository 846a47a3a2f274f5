use antiphon::optimize::blocks::BlockDual;
use antiphon::optimize::resolvent::*;
use antiphon::optimize::{Params, optimize};
use antiphon::optimize::dense;
use antiphon::linalg::dense::singular_values;
use antiphon::schema::Schema;
use antiphon::workload::Workload;
#[test] fn diag() {
  for (n,b,beta,lo,hi) in [(60usize,12usize,0.99,1e-3f64,1.0f64),(60,12,0.9,1e-3,1.0),(60,12,0.0,1e-3,1.0),(60,12,0.99,1.0,1.0),(300,30,0.99,1e-3,1.0),(300,30,0.95,1e-1,1.0)] {
  let rates: Vec<f64>=(0..n).map(|i| lo*(hi/lo).powf(i as f64/(n-1) as f64)).collect();
  let w=Workload::training(n,beta,Some(rates)).unwrap();
  let s=Schema::fixed_order(n,b).unwrap();
  let mut r=Resolvent::new(&s,&w).unwrap();
  let mut d=BlockDual::identity(s.listed().unwrap());
  println!("n={n} b={b} beta={beta} {lo:e}..{hi:e}");
  for it in 0..41 {
    let rule=r.rule(&d,1e-5).unwrap();
    let (x,_)=r.blocks(&d,&rule);
    let (lo,hi)=r.spectrum_bounds(&d);
    let good=rule_for(lo,hi,1e-13).unwrap();
    let (y,_)=r.blocks(&d,&good);
    let worst=x.iter().zip(&y).map(|(x,y)|{let e:f64=x.iter().zip(y).map(|(a,b)|(a-b).powi(2)).sum::<f64>().sqrt(); e/y.iter().map(|a|a*a).sum::<f64>().sqrt()}).fold(0.0,f64::max);
    let sg=singular_values(&(&w.matrix()*&dense::factor_matrix(&d).unwrap())).unwrap();
    let (mmin,mmax)=(1.0/sg[0].powi(2),1.0/sg[n-1].powi(2));
    // h at extremes
    let h=|mu:f64| rule.nodes.iter().zip(&rule.weights).map(|(t,w)| w/(mu+t)).sum::<f64>()*mu.sqrt();
    if it%8==0 { println!(" it {it}: nodes {} worst block {worst:.1e}, h(mu_min) {:.6} h(mu_max) {:.6}, cond {:.1e} a diff {:.1e}", rule.nodes.len(), h(mmin), h(mmax), mmax/mmin, d.inner_product(&x)/d.inner_product(&y)-1.0); }
    d=d.update(&y);
  }
  for implicit in [true,false] { let t=std::time::Instant::now();
  let o=optimize(&s,&w,&Params{implicit,max_iterations:300,..Params::default()},&|_|true);
  println!("  implicit {implicit}: {:?} {}", t.elapsed(), match o {Ok(o)=>format!("ok {} its gap {:e}",o.iterations,o.mechanism.claims.gap()),Err(e)=>e.to_string()}); }
  }
}
