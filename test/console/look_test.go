//go:build e2e

package console

import (
	"fmt"
	"slices"
	"strings"
)

// looks holds a page to what everybody needs: it tells screen readers what is what, can be read in dark and in light,
// and fits a narrow window and one that is enlarged. Pictures of it are kept.
func looks(p *page, name string) {
	p.Helper()
	speaks(p, name)
	p.dark(true)
	readable(p, name+" in the dark")
	p.shot(name + "-dark")
	p.dark(false)
	readable(p, name+" in the light")
	p.shot(name)
	for _, width := range []int{640, 320} { // 640 is what is left of 1280 at 200 %
		p.size(width, 900)
		if wide := p.eval(`document.documentElement.scrollWidth`); wide.(float64) > float64(width) {
			p.Errorf("%s: %v wide in a window of %d", name, wide, width)
		}
		if out := p.eval(overflows); out != "" {
			p.Errorf("%s: at %d stands out: %v", name, width, out)
		}
	}
	p.shot(name + "-narrow")
	p.size(1280, 1000)
}

// overflows names what is cut off at the right, unless it can be scrolled to.
const overflows = `[...document.querySelectorAll("header *, main *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 &&
	!e.closest(".scroll, .unseen, thead") ).map((e) => e.tagName + "." + e.getAttribute("class")).slice(0, 3).join()`

// named are the roles that mean nothing without a name.
var named = []string{"button", "link", "textbox", "searchbox", "combobox", "radio", "checkbox", "dialog", "image", "img", "heading", "region", "table", "group", "navigation"}

// speaks holds the accessibility tree: landmarks once, one first heading, no gap below it, and a name for all that needs one.
func speaks(p *page, where string) {
	p.Helper()
	count, level := map[string]int{}, 0.0
	for _, n := range p.tree() {
		role := n.Role.Value
		count[role]++
		if slices.Contains(named, role) && strings.TrimSpace(n.Name.Value) == "" {
			p.Errorf("%s: a %s has no name", where, role)
		}
		if role == "heading" {
			now, _ := n.property("level").(float64)
			if now > level+1 {
				p.Errorf("%s: heading %q of level %v follows one of level %v", where, n.Name.Value, now, level)
			}
			if level = now; now == 1 {
				count["first heading"]++
			}
		}
	}
	for _, one := range []string{"banner", "main", "first heading"} {
		if count[one] != 1 {
			p.Errorf("%s: %d of %s", where, count[one], one)
		}
	}
	if title := fmt.Sprint(p.eval(`document.title`)); !strings.HasSuffix(title, " · salvor") {
		p.Errorf("%s: its title is %q", where, title)
	}
	if p.eval(`document.querySelectorAll("[tabindex]:not([tabindex='0'], [tabindex='-1'])").length`) != 0.0 {
		p.Errorf("%s: a tabindex changes the order", where)
	}
	if ids := p.eval(`(() => { const all = [...document.querySelectorAll("[id]")].map((e) => e.id); return all.filter((id, i) => all.indexOf(id) !== i).join(); })()`); ids != "" {
		p.Errorf("%s: ids are given twice: %v", where, ids)
	}
}

// readable computes the contrast of every text that is seen against what is behind it; 4.5 is the least, 3 for large ones.
func readable(p *page, where string) {
	p.Helper()
	if found := p.eval(contrast); found != "" {
		p.Errorf("%s: too little contrast: %v", where, found)
	}
}

const contrast = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const rgba = (color) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = "#000";
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
		return [r, g, b, a / 255];
	};
	const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
	const ground = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) layers.unshift(rgba(getComputedStyle(e).backgroundColor));
		return layers.reduce((under, layer) => over(layer, under), [255, 255, 255]);
	};
	const light = (c) => c.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const bad = new Set();
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		if (!texts.currentNode.data.trim() || !e.checkVisibility() || e.closest(".unseen, .skip, noscript, option, :disabled, svg")) continue;
		const style = getComputedStyle(e);
		const under = ground(e);
		const [a, b] = [light(over(rgba(style.color), under)), light(under)].sort((x, y) => y - x);
		const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < least) bad.add(e.tagName + "." + e.className + " " + ratio.toFixed(2) + " " + texts.currentNode.data.trim().slice(0, 20));
	}
	return [...bad].slice(0, 5).join("; ");
})()`
