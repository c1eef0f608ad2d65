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

// The supported versions of documents. Older ones have the same fields, but other defaults.
var apiVersions = []string{"admissionregistration.k8s.io/v1"}

// A Kind is one of the two kinds of webhook configurations.
type Kind struct {
	Name string // the field kind of a document

	phase     string // the name in upstream's metrics and annotations
	resources cluster.KindOf[*cluster.JSON]
	decode    func(unmarshal func(into any) []error) (*configuration, []error)
}

// A configuration is a webhook configuration of either kind.
type configuration struct {
	metav1.ObjectMeta
	webhooks []admissionregistrationv1.MutatingWebhook // a validating webhook has all of its fields but one
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

// read reads the configurations in manifests and in lists, sorted by name, with defaults. As
// kube-apiserver does for a folder of manifests, it rejects unknown fields, other kinds,
// duplicate names, Services unless services is true, and everything that is invalid in the
// API. Unlike there, names need not end with ".static.k8s.io", which distinguishes them from
// configurations in the API. The error joins all errors.
func (k *Kind) read(manifests []admission.File, services bool) (all []*configuration, err error) {
	from := make(map[*configuration]string)
	reader := documents.Reader{APIVersions: apiVersions, Kinds: []string{k.Name}, Add: func(file *admission.File, _ string, content []byte) []error {
		c, errs := k.decode(func(into any) []error { return documents.Decode(content, into) })
		if errs != nil {
			return errs
		}
		all, from[c] = append(all, c), file.Name
		return documents.Named(k.Name, c.Name, c.check(services || file.FromAPI))
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
