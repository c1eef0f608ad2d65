// Package mutatingadmissionpolicy is the admission plugin MutatingAdmissionPolicy.
//
// It evaluates MutatingAdmissionPolicies: changes of objects that are written in CEL,
// with bindings that say for which requests a policy counts. Whoever has defaults of
// his own and does not want to write a webhook for them wants this.
//
// Behaviour: k8s.io/apiserver v0.36.3 pkg/admission/plugin/policy/mutating and
// mutating/patch, for policies in files (pkg/admission/plugin/policy/manifest). These
// packages are not used: they double the binary and decode whole objects.
package mutatingadmissionpolicy

import (
	"context"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/internal/policy"
)

// Plugin is the plugin's line in the table.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:    "MutatingAdmissionPolicy",
		Summary: "evaluates MutatingAdmissionPolicies, changes of objects written in CEL",
		Rules: []handlers.Rule{{
			Operations: []codec.Operation{codec.Create, codec.Update},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
		}},
		Mutates:     true,
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create")},
		OnByDefault: true,
		New:         newHandler,
	}
}

const (
	configAPIVersion = "apiserver.config.k8s.io/v1"
	configKind       = "MutatingAdmissionPolicyConfiguration"
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
	policies policy.Set[*mutator]
	cluster  policy.Cluster
}

// copiesBytesMax is how much the operations "copy" of a JSON Patch may add to an
// object: kube-apiserver's default (k8s.io/apiserver pkg/server/config.go
// JSONPatchMaxCopyBytes).
const copiesBytesMax = 3 << 20

// limitCopies sets a variable of package jsonpatch, as kube-apiserver does.
var limitCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = copiesBytesMax })

func newHandler(setup handlers.Setup) (handlers.Handler, error) {
	limitCopies()
	if err := checkConfiguration(setup.Config); err != nil {
		return handlers.Handler{}, err
	}
	documents, err := policy.ReadMutating(setup.Manifests)
	if err != nil {
		return handlers.Handler{}, err
	}
	p := &plugin{cluster: policy.Cluster{
		Namespaces: cluster.Namespaces.In(setup.Cluster), Access: cluster.AccessIn(setup.Cluster), Params: policy.GivenParams(setup.Params),
	}}
	p.policies, err = policy.NewSet(documents, newMutator)
	return handlers.Handler{Admit: p.admit}, err
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

func (p *plugin) admit(ctx context.Context, review *codec.Review) handlers.Result {
	if len(p.policies) == 0 || policy.IsExcluded(review.Resource()) {
		return handlers.Allowed()
	}
	d := dispatches.Get().(*dispatch)
	defer d.release()
	d.Begin(ctx, review, &p.cluster)
	return d.admit(p.policies)
}
