package oracle

import (
	"bytes"
	"context"
	"io"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/fastadmit/fastadmit/handlers"
)

// upstream is a plugin of the API server that is linked in.
type upstream struct{ plugin admission.Interface }

// NewUpstream makes the plugin ready as kube-apiserver does. Config is its own
// configuration file, empty for none.
func NewUpstream(name, config string) (Implementation, error) {
	plugins := admission.NewPlugins()
	options.RegisterAllAdmissionPlugins(plugins)
	var file io.Reader
	if config != "" {
		file = bytes.NewBufferString(config)
	}
	plugin, err := plugins.InitPlugin(name, file,
		initializer.New(nil, nil, nil, nil, utilfeature.DefaultFeatureGate, nil, nil, nil))
	if err != nil {
		return nil, err
	}
	return &upstream{plugin}, nil
}

func (u *upstream) answer(r *request, phase handlers.Phase) (Answer, error) {
	attributes, err := r.Case.attributes() // of its own: the plugin writes to the object
	if err != nil {
		return Answer{}, err
	}
	if denial := u.ask(attributes, phase); denial != nil {
		return Answer{Status: responsewriters.ErrorToAPIStatus(denial)}, nil
	}
	if phase == handlers.Validate {
		return Answer{}, nil
	}
	versioned, err := admission.NewVersionedAttributes(attributes, r.asKind(), objectInterfaces())
	if err != nil {
		return Answer{}, err
	}
	object, err := encode(versioned.VersionedObject)
	return Answer{Object: object}, err
}

func (u *upstream) ask(attributes admission.Attributes, phase handlers.Phase) error {
	if !u.plugin.Handles(attributes.GetOperation()) {
		return nil
	}
	ctx := context.Background()
	if mutator, ok := u.plugin.(admission.MutationInterface); ok && phase == handlers.Mutate {
		return mutator.Admit(ctx, attributes, objectInterfaces())
	}
	if validator, ok := u.plugin.(admission.ValidationInterface); ok && phase == handlers.Validate {
		return validator.Validate(ctx, attributes, objectInterfaces())
	}
	return nil
}
