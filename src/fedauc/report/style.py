"""The style sheet and the few lines of script of the page."""

from __future__ import annotations

CSS = """
:root{color-scheme:light dark;--bg:#fff;--card:#f6f7f9;--ink:#14181f;--soft:#5a6472;--line:#dfe3e8;
--grid:#e8ebef;
--accent:#334155;--track:#eceff3;--band:.17;--raised:#fff;--shade:rgb(20 30 45/.16);
--m0:#0067b1;--m1:#c84400;--m2:#008f6b;--m3:#8c2f74;--m4:#33a1de;--m5:#cf9200;--y0:#3b4350;--y1:#858e9b;--faint:#c9ced6}
@media (prefers-color-scheme:dark){:root{--bg:#12151a;--card:#1b2027;--ink:#e9edf2;--soft:#a0aab7;
--line:#323a45;
--grid:#262d36;--accent:#b9c6d6;--track:#232a33;--band:.3;--raised:#323b47;--shade:rgb(0 0 0/.7);
--m0:#4f9bea;--m1:#f48a45;--m2:#35c79b;--m3:#c05fa5;--m4:#9bd8fa;--m5:#f0c04a;--y0:#d5dbe3;--y1:#8a95a3;--faint:#48515d}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
main,footer{max-width:1040px;margin:0 auto;padding:0 20px}
h1,h2,h3{line-height:1.2;margin:0;text-wrap:balance}
h2{font-size:1.4rem;letter-spacing:-.01em;margin-bottom:.7rem}
h3{font-size:1rem;margin:1.4rem 0 .5rem}
section{padding:2rem 0 .4rem;margin-top:2rem;border-top:1px solid var(--line)}
p{margin:.4rem 0}
a{color:inherit;text-underline-offset:3px;text-decoration-color:var(--line)}
a:hover{text-decoration-color:currentColor}
:focus-visible{outline:2px solid var(--m0);outline-offset:2px;border-radius:4px}
.eyebrow{margin:2.2rem 0 .3rem;color:var(--soft);font-size:.85rem}
h1{font-size:1.15rem;font-weight:600}
h1 .swatch{width:.8em;height:.8em}
.hero{display:grid;grid-template-columns:auto minmax(0,1fr);gap:.6rem 3rem;align-items:center;
margin:.5rem 0 1rem}
.big{font-size:clamp(3.6rem,12vw,5.8rem);font-weight:700;line-height:1;letter-spacing:-.035em;
font-variant-numeric:tabular-nums;margin:.3rem 0 .4rem}
.under{color:var(--soft);font-variant-numeric:tabular-nums}
.verdict{font-size:1.3rem;line-height:1.42;margin:1.2rem 0;padding-left:1rem;
border-left:4px solid currentColor}
.nb{white-space:nowrap}
.verdict span{color:var(--ink)}
nav{margin:1.4rem 0 0;font-size:.9rem;color:var(--soft);display:flex;flex-wrap:wrap;gap:.1rem 1.1rem}
nav a{padding:.25rem 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:10px;margin:1.2rem 0;
padding:0}
.tiles div{background:var(--card);border-radius:10px;padding:.7rem .9rem}
.tiles dt{color:var(--soft);font-size:.8rem}
.tiles dd{margin:0;font-size:1.25rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}
.tiles small{display:block;font-weight:400;font-size:.78rem;color:var(--soft)}
figure{margin:0 0 1rem}
figcaption,.howto{color:var(--soft);font-size:.87rem;max-width:86ch;margin-top:.5rem}
figcaption b,.howto b{color:var(--ink);font-weight:600}
.pair{display:grid;grid-template-columns:minmax(0,460px) minmax(0,1fr);gap:1rem 40px;align-items:start}
.legend{display:flex;flex-wrap:wrap;gap:.15rem 1.2rem;list-style:none;margin:.2rem 0 .8rem;padding:0;
font-size:.87rem}
.legend b{font-weight:600;white-space:nowrap;font-variant-numeric:tabular-nums}
.column{display:block}.column li{padding:.3rem 0;border-bottom:1px solid var(--line);display:flex;gap:.6rem;
align-items:center}.column b{margin-left:auto}
.swatch{display:inline-block;width:.72em;height:.72em;border-radius:50%;background:currentColor;flex:none;
margin-right:.4em;vertical-align:-.02em}
.swatch.d1,.swatch.d3,.swatch.d4,.swatch.d5{border-radius:0;transform:scale(1.18)}
.swatch.d1{clip-path:polygon(50% 0,100% 50%,50% 100%,0 50%)}
.swatch.d2{border-radius:1px;transform:scale(.92)}
.swatch.d3{clip-path:polygon(0 8%,100% 8%,50% 100%)}.swatch.d4{clip-path:polygon(0 92%,100% 92%,50% 0)}
.swatch.d5{clip-path:polygon(35% 0,65% 0,65% 35%,100% 35%,100% 65%,65% 65%,65% 100%,35% 100%,35% 65%,0 65%,
0 35%,35% 35%)}
.key{display:inline-block;width:34px;height:14px;margin-right:.45em;vertical-align:-.1em;flex:none}
.rest{border:0;padding:0;margin:0 0 .6rem}.rest summary{padding:.3rem 0;font-weight:400;font-size:.87rem}
.rest li button{all:unset;cursor:pointer;display:flex;gap:.6rem;align-items:center;width:100%;opacity:.75}
.rest li button[aria-pressed=true]{opacity:1;font-weight:600}
.rest li button:focus-visible{outline:2px solid var(--m0);outline-offset:2px}
.twin{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:0 40px}.twin h3{margin-top:.4rem}
.who{list-style:none;margin:.4rem 0 1rem;padding:0}
.who li{padding:.4rem 0;border-bottom:1px solid var(--line)}
.key-name{margin-right:.8rem;font-weight:600;font-size:.93rem}
.switch{display:inline-flex;border:1px solid var(--line);border-radius:9px;padding:2px;margin:0 0 .9rem;
background:var(--card)}
.switch button{font:inherit;font-size:.87rem;border:0;background:none;color:var(--soft);padding:.3rem .8rem;
border-radius:7px;cursor:pointer}
.switch button[aria-pressed=true]{background:var(--raised);color:var(--ink);font-weight:600;
box-shadow:0 1px 3px rgb(0 0 0/.18)}
.js .view>h3{display:none}
.scroll{overflow-x:auto;margin:.6rem 0;background:linear-gradient(to left,var(--bg) 40%,
transparent) right/36px 100% no-repeat local,
linear-gradient(to left,var(--shade),transparent) right/14px 100% no-repeat scroll}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.42rem .7rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:top;
white-space:nowrap}
th{font-weight:600;font-size:.8rem;color:var(--soft);vertical-align:bottom}
tbody th{font-size:.9rem;color:var(--ink);font-weight:400;vertical-align:top}
th:first-child,td:first-child{text-align:left;padding-left:0;position:sticky;left:0;background:var(--bg);
white-space:normal;min-width:9.5rem}
th:last-child,td:last-child{padding-right:0}
tr.best th,tr.best td{font-weight:650}
tr.total th,tr.total td{font-weight:600;border-bottom:0}
td small,th small{color:var(--soft);font-weight:400}
td .bar{display:block;height:8px;border-radius:2px;background:var(--accent);min-width:1px;opacity:.75}
.ledger td:nth-child(4){width:24%;min-width:70px;vertical-align:middle}
.roll .words{display:block;text-align:left;white-space:normal;min-width:11rem;max-width:26rem}
.roll th:first-child{min-width:8.2rem}.roll small{display:block}
details{border:1px solid var(--line);border-radius:10px;margin:.6rem 0;padding:0 1rem}
summary{cursor:pointer;padding:.6rem 0;font-weight:600;font-size:.93rem}
summary small{font-weight:400;color:var(--soft);margin-left:.4rem}
details[open]{padding-bottom:.6rem}
.promise{border-left:4px solid var(--m2);padding:.1rem 0 .1rem .9rem;margin:.6rem 0 1rem}
.warn{border-left:4px solid var(--m1);padding:.1rem 0 .1rem .9rem;margin:.8rem 0}
pre{overflow-x:auto;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
margin:0}
.notes{padding-left:1.2rem;margin:.4rem 0}
footer{color:var(--soft);font-size:.85rem;padding-top:1.2rem;padding-bottom:3rem;margin-top:2rem}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg .name{fill:var(--ink);font-size:13px}svg .strong{font-weight:600;font-size:13px}
svg .strong:not(.name){fill:currentColor;font-size:14px}
svg .number{fill:var(--ink)}svg .note{fill:var(--ink);paint-order:stroke;stroke:var(--bg);stroke-width:4px}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}.row{stroke:var(--grid)}
.stage{stroke:var(--soft);stroke-dasharray:2 4;opacity:.7}
.chance{stroke:var(--soft);stroke-dasharray:3 4}
.tick{stroke:currentColor;stroke-width:2}
.fill{fill:currentColor}.ring{stroke:var(--bg);stroke-width:2.5}
.band{fill:currentColor;opacity:var(--band)}
.soft{fill:currentColor;fill-opacity:.68;stroke:var(--bg);stroke-width:1}
.open{fill:var(--bg);fill-opacity:.35;stroke:currentColor;stroke-width:2}
.curve{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}.lead{stroke-width:2.8}
.level{fill:none;stroke:currentColor;stroke-width:1.5;stroke-dasharray:6 4}
.track{fill:var(--track)}.took{fill:var(--accent)}
.gap{fill:var(--bg)}.missed{fill:var(--bg);stroke:var(--m1);stroke-width:1.2}
.hatch{fill:none;stroke:var(--m1);stroke-width:1.2}
.cross{fill:none;stroke:var(--ink);stroke-width:1.6}.resumed{fill:var(--ink)}
.resumption{stroke:var(--ink);stroke-dasharray:3 3;opacity:.75}
.curve.d1{stroke-dasharray:7 4}.curve.d2{stroke-dasharray:2 4;stroke-linecap:round}
.curve.d3{stroke-dasharray:10 4 2 4}.curve.d4{stroke-dasharray:16 5}.curve.d5{stroke-dasharray:9 3 2 3 2 3}
.m0{color:var(--m0)}.m1{color:var(--m1)}.m2{color:var(--m2)}.m3{color:var(--m3)}.m4{color:var(--m4)}
.m5{color:var(--m5)}.y0{color:var(--y0)}.y1{color:var(--y1)}
.curve.faint{stroke:var(--faint);stroke-width:1.3;stroke-dasharray:none}
.curve.solo{stroke-dasharray:none}
.narrow{display:none}
@media screen and (max-width:820px){
main,footer{padding:0 16px}.wide{display:none}.narrow{display:block}
.narrow svg{margin:0 auto;max-width:440px!important}
.hero,.pair,.twin{grid-template-columns:minmax(0,1fr)}.verdict{font-size:1.13rem}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}
th:first-child,td:first-child{min-width:7.2rem;max-width:10.5rem;padding-right:.6rem}
th,td{padding-left:.5rem;padding-right:.5rem}.ledger td:nth-child(4){display:none}
.ledger th:first-child{min-width:5rem}summary small{display:block;margin-left:0}
}
@media print{
:root{--bg:#fff;--card:#f6f7f9;--ink:#000;--soft:#444;--line:#ccc;--grid:#e5e5e5;--accent:#334155;
--track:#eee;
--m0:#0067b1;--m1:#c84400;--m2:#008f6b;--m3:#8c2f74;--m4:#33a1de;--m5:#cf9200;--y0:#3b4350;--y1:#858e9b;--faint:#c9ced6}
body{font-size:10pt}.big{font-size:42pt}.hero+.verdict{font-size:12.5pt}svg text{font-size:14px!important}
main,footer{max-width:none;padding:0}
nav,.switch{display:none!important}.view[hidden]{display:block!important}.js .view>h3{display:block}
.scroll{overflow:visible;background:none}th,td,tbody th{font-size:8pt;padding:.25rem .35rem}
th:first-child,td:first-child{position:static;min-width:7rem}
figure,tr,.tiles div,.pair{break-inside:avoid}h2,h3{break-after:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""

# Each .views box gets a switch between its .view children; a hash such as #bytes picks one.
# Without script all of them show. Names in a .rest list colour their grey lines.
JS = """
(function(){
var d=document,root=d.documentElement;
function show(view){
  view.parentNode.querySelectorAll('.view').forEach(function(v){v.hidden=v!==view});
  view.parentNode.querySelectorAll('button').forEach(function(b){
    b.setAttribute('aria-pressed',String(b.dataset.view===view.id))});
}
d.querySelectorAll('.views').forEach(function(box){
  var views=box.querySelectorAll('.view');
  if(views.length<2)return;
  var bar=d.createElement('div');bar.className='switch';bar.setAttribute('role','group');
  bar.setAttribute('aria-label',box.dataset.label);
  views.forEach(function(v){
    var b=d.createElement('button');b.type='button';b.dataset.view=v.id;
    b.textContent=v.querySelector('h3').textContent;
    b.onclick=function(){show(v);try{history.replaceState(null,'','#'+v.id)}catch(e){}};
    bar.appendChild(b);
  });
  box.insertBefore(bar,views[0]);show(views[0]);
});
d.querySelectorAll('.rest li').forEach(function(li){
  var b=d.createElement('button');b.type='button';b.setAttribute('aria-pressed','false');
  while(li.firstChild)b.appendChild(li.firstChild);
  li.appendChild(b);
  b.onclick=function(){
    var on=b.getAttribute('aria-pressed')!=='true';b.setAttribute('aria-pressed',String(on));
    li.closest('figure').querySelectorAll('path[data-e="'+li.dataset.e+'"]').forEach(function(p){
      p.classList.toggle('faint',!on);if(on)p.parentNode.appendChild(p)});
  };
});
function follow(){
  var v=d.getElementById(location.hash.slice(1));
  if(v&&v.classList.contains('view')){show(v);v.parentNode.scrollIntoView()}
}
addEventListener('hashchange',follow);
var shut=[];
addEventListener('beforeprint',function(){
  shut=d.querySelectorAll('details:not([open])');
  shut.forEach(function(x){x.open=true});
});
addEventListener('afterprint',function(){shut.forEach(function(x){x.open=false})});
root.classList.add('js');follow();root.dataset.ready='1';
})();
"""
