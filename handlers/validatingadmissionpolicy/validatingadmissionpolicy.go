// Package validatingadmissionpolicy is the admission plugin
// ValidatingAdmissionPolicy.
//
// It evaluates ValidatingAdmissionPolicies: rules about objects that are written in
// CEL, with bindings that say for which requests a policy counts and whether a
// violation denies, warns or is audited. Whoever has rules of his own and does not
// want to write a webhook for them wants this.
//
// Behaviour: k8s.io/apiserver v0.36.3 pkg/admission/plugin/policy/validating, generic
// and matching, for policies in files (pkg/admission/plugin/policy/manifest). These
// packages are not used: they double the binary and decode whole objects.
package validatingadmissionpolicy

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/internal/policy"
)

// Plugin is the plugin's line in the table.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:        "ValidatingAdmissionPolicy",
		Summary:     "evaluates ValidatingAdmissionPolicies, rules about objects written in CEL",
		Rules:       []handlers.Rule{handlers.Any()},
		Validates:   true,
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create")},
		OnByDefault: true,
		New:         newHandler,
	}
}

const (
	configAPIVersion = "apiserver.config.k8s.io/v1"
	configKind       = "ValidatingAdmissionPolicyConfiguration"
)

// configuration is the plugin's configuration file (k8s.io/apiserver
// pkg/admission/plugin/policy/config/apis/policyconfig/v1). The folder is read by
// whoever reads the file.
type configuration struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	StaticManifestsDir string `json:"staticManifestsDir"`
}

type plugin struct {
	policies policy.Set[*validator]
	cluster  policy.Cluster
}

func newHandler(setup handlers.Setup) (handlers.Handler, error) {
	if err := checkConfiguration(setup.Config); err != nil {
		return handlers.Handler{}, err
	}
	documents, err := policy.ReadValidating(setup.Manifests)
	if err != nil {
		return handlers.Handler{}, err
	}
	p := &plugin{cluster: policy.Cluster{
		Namespaces: cluster.Namespaces.In(setup.Cluster), Access: cluster.AccessIn(setup.Cluster), Params: policy.GivenParams(setup.Params),
	}}
	p.policies, err = policy.NewSet(documents, newValidator)
	return handlers.Handler{Validate: p.validate}, err
}

func checkConfiguration(content []byte) error {
	if content == nil {
		return nil // and no policy, as there
	}
	c := new(configuration)
	return handlers.DecodeConfig(content, c, func() field.ErrorList {
		return handlers.ValidateConfigType(c.APIVersion, configAPIVersion, c.Kind, configKind)
	})
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) handlers.Result {
	if len(p.policies) == 0 || policy.IsExcluded(review.Resource()) {
		return handlers.Allowed()
	}
	d := dispatches.Get().(*dispatch)
	defer d.release()
	d.Begin(ctx, review, &p.cluster)
	for _, policy := range p.policies {
		if result := d.dispatch(policy); result != nil {
			return *result
		}
	}
	return d.result()
}
