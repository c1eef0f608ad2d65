// Package explain writes what plugins say about how they decided.
package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// An outline writes lines, each below the one that it belongs to.
type outline struct{ strings.Builder }

// line writes a text with escapes. If it has several lines, all have the same indent.
func (o *outline) line(indent int, text string) {
	before := strings.Repeat("  ", indent)
	o.WriteString(before + strings.ReplaceAll(strings.TrimSpace(printable.Lines(text)), "\n", "\n"+before) + "\n")
}

// Text returns what the plugins did with an object, as text with escapes. message is not repeated: it is shown
// elsewhere. Each line has the indent.
func Text(all []*admission.Explanation, message string, indent int) string {
	var o outline
	phase, round := "", 0
	for _, x := range all {
		if x.Phase != phase || x.Round != round {
			phase, round = x.Phase, x.Round
			title := phase
			if round > 1 {
				title += ", round " + fmt.Sprint(round)
			}
			o.line(indent, title+":")
		}
		o.plugin(indent+1, message, x)
	}
	return o.String()
}

func (o *outline) plugin(indent int, message string, x *admission.Explanation) {
	if !x.Asked {
		o.line(indent, printable.Word(x.Plugin)+": not asked: "+x.Why)
		return
	}
	text := printable.Word(x.Plugin) + ": " + x.Outcome
	if x.Message != "" && x.Message != message {
		text += ": " + x.Message
	}
	o.line(indent, text)
	o.line(indent+1, "asked: "+x.Why)
	o.exception(indent+1, x.Exception)
	for _, c := range x.Changes {
		o.change(indent+1, c)
	}
	if x.Undone {
		o.line(indent+1, "these changes were undone")
	}
	for i := range x.Policies {
		o.policy(indent+1, &x.Policies[i])
	}
	if x.MorePolicies > 0 {
		o.line(indent+1, fmt.Sprintf("%d more policies", x.MorePolicies))
	}
	for _, w := range x.Webhooks {
		title := verdict{"webhook " + w.Webhook + ", configuration " + w.Configuration, w.Pass, w.Asked, w.Why, w.Outcome, w.Message, ""}
		o.verdict(indent+1, &title, w.Expressions)
	}
	if x.MoreWebhooks > 0 {
		o.line(indent+1, fmt.Sprintf("%d more webhooks", x.MoreWebhooks))
	}
	for i := range x.Standards {
		o.standard(indent+1, &x.Standards[i])
	}
}

// exception says which exception lifts a denial.
func (o *outline) exception(indent int, name string) {
	if name != "" {
		o.line(indent, "excepted by PolicyException "+name)
	}
}

func (o *outline) standard(indent int, s *admission.StandardExplanation) {
	if s.Asked {
		o.line(indent, printable.Word(s.Mode+" "+s.Standard)+": "+s.Outcome)
	} else {
		o.line(indent, printable.Word(s.Mode+" "+s.Standard)+": not asked: "+s.Why)
	}
	o.line(indent+1, s.From)
	for _, check := range s.FailedChecks {
		o.line(indent+1, "fails: "+check)
	}
}

func (o *outline) change(indent int, c admission.Change) {
	text := c.Operation + " " + printable.Word(c.Path) + ": "
	switch {
	case c.Old == "":
		text += c.New
	case c.New == "":
		text += "was " + c.Old
	default:
		text += c.Old + " => " + c.New
	}
	if c.Policy != "" {
		text += ", by policy " + c.Policy
	}
	if c.Webhook != "" {
		text += ", by webhook " + c.Webhook
	}
	o.line(indent, text)
}

func (o *outline) policy(indent int, p *admission.PolicyExplanation) {
	title := "policy " + p.Policy
	if p.Binding != "" {
		title += ", binding " + p.Binding
	}
	if p.Param != "" {
		title += ", parameter " + p.Param
	}
	o.verdict(indent, &verdict{title, p.Pass, p.Asked, p.Why, p.Outcome, p.Message, p.Exception}, p.Expressions)
}

// A verdict is what a policy or a webhook decided.
type verdict struct {
	title                 string
	pass                  int
	asked                 bool
	why, outcome, message string
	exception             string // that lifts it
}

func (o *outline) verdict(indent int, v *verdict, expressions []admission.ExpressionExplanation) {
	title := v.title
	if v.pass > 1 {
		title += ", pass " + fmt.Sprint(v.pass)
	}
	if title = printable.Word(title); !v.asked && v.outcome == "" {
		o.line(indent, title+": not asked: "+v.why)
	} else {
		text := title + ": " + v.outcome
		if v.message != "" {
			text += ": " + v.message
		}
		o.line(indent, text)
		if v.why != "" {
			o.line(indent+1, "asked: "+v.why)
		}
		o.exception(indent+1, v.exception)
	}
	for i := range expressions {
		o.expression(indent+1, &expressions[i])
	}
}

func (o *outline) expression(indent int, x *admission.ExpressionExplanation) {
	o.line(indent, x.Field+" is "+x.Value)
	if x.Value == "true" {
		return
	}
	o.line(indent+1, x.Expression)
	for _, v := range x.Values {
		text := v.Expression + " => " + v.Value
		if v.Of != "" && !slices.Contains([]string{v.Expression, v.Value}, v.Of) {
			text += ", of: " + v.Of
		}
		o.line(indent+2+v.Depth, strings.ReplaceAll(text, "\n", " "))
	}
	if x.MoreValues > 0 {
		o.line(indent+2, fmt.Sprintf("%d more", x.MoreValues))
	}
}
