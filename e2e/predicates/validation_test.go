package predicates

import (
	"errors"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"

	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

// TestValidation compares the validation errors of both for criteria.
func TestValidation(t *testing.T) {
	g := newGenerator(t)
	row := tally.Row{Plugin: "criteria", Test: "generated validation", Cases: *cases / 10}
	refused := 0
	for range row.Cases {
		c := g.anyCriteria()
		want := upstreamErrors(t, c)
		var got []string
		if _, err := match.New(c, field.NewPath("webhooks").Index(0)); err != nil {
			got = texts(err)
		}
		if len(want) > 0 {
			refused++
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v\ngot  %s\nwant %s", c, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
			if row.Different = append(row.Different, strings.Join(want, ", ")); len(row.Different) == differencesMax {
				break
			}
		}
	}
	mustWrite(t, row)
	t.Logf("%d of %d refused", refused, row.Cases)
	if !t.Failed() && (refused < row.Cases/10 || refused > row.Cases*9/10) {
		t.Error("want at least a tenth of either")
	}
}

// upstreamErrors returns an API server's errors for a webhook configuration with these criteria.
func upstreamErrors(t *testing.T, c *match.Criteria) []string {
	t.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "a.example.com", Rules: c.Rules, NamespaceSelector: c.NamespaceSelector, ObjectSelector: c.ObjectSelector,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://a.example.com")},
			SideEffects:  new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	configuration = configuration.DeepCopy()
	legacyscheme.Scheme.Default(configuration)
	internal, err := legacyscheme.Scheme.ConvertToVersion(configuration, runtime.InternalGroupVersioner)
	if err != nil {
		t.Fatal(err)
	}
	errs := validation.ValidateValidatingWebhookConfiguration(internal.(*admissionregistration.ValidatingWebhookConfiguration))
	if len(errs) == 0 {
		return nil
	}
	return texts(errs.ToAggregate())
}

func texts(err error) (texts []string) {
	all, ok := errors.AsType[utilerrors.Aggregate](err)
	if !ok {
		return []string{"no list: " + err.Error()}
	}
	for _, e := range all.Errors() {
		texts = append(texts, e.Error())
	}
	slices.Sort(texts)
	return texts
}

// anyCriteria generates criteria that an API server may refuse.
func (g *generator) anyCriteria() *match.Criteria {
	c := g.criteria()
	for i := range c.Rules {
		if r := &c.Rules[i]; g.in(3) {
			g.spoil(r)
		}
	}
	for _, s := range []*metav1.LabelSelector{c.NamespaceSelector, c.ObjectSelector} {
		if s == nil || !g.in(4) {
			continue
		}
		if g.in(2) {
			s.MatchLabels = map[string]string{pick(g, "a", "", "a/b/c", "-"): pick(g, "x", "-", "é")}
			continue
		}
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key:      pick(g, "a", "", "a b", "example.com/"),
			Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpExists, "in", "Gt", ""),
			Values:   some(g, 0, 2, func() string { return pick(g, "x", "", "x y") }),
		})
	}
	return c
}

func (g *generator) spoil(r *admissionregistrationv1.RuleWithOperations) {
	switch g.IntN(5) {
	case 0:
		r.Operations = some(g, 0, 3, func() admissionregistrationv1.OperationType { return pick(g, r.Operations[0], "*", "create", "") })
	case 1:
		r.APIGroups = some(g, 0, 3, func() string { return pick(g, "", "*", "apps") })
	case 2:
		r.APIVersions = some(g, 0, 3, func() string { return pick(g, "", "*", "v1") })
	case 3:
		r.Resources = some(g, 0, 4, func() string {
			return pick(g, "", "*", "*/*", "pods", "pods/*", "pods/exec", "*/exec", "*/", "/*", "/", "pods/exec/x")
		})
	case 4:
		r.Scope = new(pick[admissionregistrationv1.ScopeType](g, "", "cluster", "Namespaced"))
	}
}
