package webhook

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// The versions of documents that are read. The fields of the last are the same, but for
// its defaults, which are not those of a version that is served today.
var apiVersions = []string{"admissionregistration.k8s.io/v1"}

// A Kind is one of the two kinds of webhook configurations.
type Kind struct {
	Name string // as in the field kind of a document

	phase     string // as upstream's metrics and annotations call it
	resources cluster.KindOf[*cluster.JSON]
	decode    func(unmarshal func(into any) []error) (*configuration, []error)
}

// A configuration is one of either kind.
type configuration struct {
	metav1.ObjectMeta
	webhooks []admissionregistrationv1.MutatingWebhook // of which a validating one has all but one field
}

// MutatingKind is the kind MutatingWebhookConfiguration.
var MutatingKind = &Kind{
	Name: "MutatingWebhookConfiguration", phase: "admit", resources: cluster.MutatingWebhookConfigurations,
	decode: func(unmarshal func(any) []error) (*configuration, []error) {
		var read admissionregistrationv1.MutatingWebhookConfiguration
		errs := unmarshal(&read)
		return &configuration{ObjectMeta: read.ObjectMeta, webhooks: read.Webhooks}, errs
	},
}

// ValidatingKind is the kind ValidatingWebhookConfiguration.
var ValidatingKind = &Kind{
	Name: "ValidatingWebhookConfiguration", phase: "validating", resources: cluster.ValidatingWebhookConfigurations,
	decode: func(unmarshal func(any) []error) (*configuration, []error) {
		var read admissionregistrationv1.ValidatingWebhookConfiguration
		errs := unmarshal(&read)
		c := &configuration{ObjectMeta: read.ObjectMeta}
		for _, w := range read.Webhooks {
			c.webhooks = append(c.webhooks, admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			})
		}
		return c, errs
	},
}

// read reads the configurations in manifests, lists among them, sorted by name, with
// defaults. It refuses what kube-apiserver refuses in a folder of manifests: unknown
// fields, other kinds, two of one name, Services unless services is true, and what is not
// valid in the API. Names need not end with ".static.k8s.io" as there, where
// configurations of the API must have other names. The error joins all that is wrong.
func (k *Kind) read(manifests []admission.File, services bool) (all []*configuration, err error) {
	from := make(map[*configuration]string)
	reader := documents.Reader{APIVersions: apiVersions, Kinds: []string{k.Name}, Add: func(file *admission.File, _ string, content []byte) []error {
		c, errs := k.decode(func(into any) []error { return documents.Decode(content, into) })
		if errs != nil {
			return errs
		}
		all, from[c] = append(all, c), file.Name
		return k.named(c, c.check(services || file.FromAPI))
	}}
	errs := reader.Read(manifests)
	slices.SortStableFunc(all, func(a, b *configuration) int { return strings.Compare(a.Name, b.Name) })
	for i, c := range all {
		if i > 0 && c.Name == all[i-1].Name {
			errs = append(errs, &admission.FileError{File: from[c], Err: fmt.Errorf("duplicate name %q", c.Name)})
		}
	}
	return all, utilerrors.NewAggregate(errs)
}
