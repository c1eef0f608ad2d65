package oracle

import (
	"bytes"
	"context"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kubeadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/pkg/quota/v1/install"

	"github.com/fastadmit/fastadmit/handlers"
)

// upstream is a plugin of the API server that is linked in.
type upstream struct{ plugin admission.Interface }

// A World is the cluster that both implementations are asked in.
type World struct {
	// Objects are what there is, of the kinds that fastadmit knows, with their
	// defaults. Each side has its own copies, and may write to them.
	Objects []runtime.Object
	// Authorizer says who may do what; nil if everybody may do everything.
	Authorizer authorizer.Authorizer
}

// NewUpstream makes the plugin ready as kube-apiserver does, in a world that ends
// with ctx. Config is its own configuration file, empty for none.
func NewUpstream(ctx context.Context, name, config string, world World) (Implementation, error) {
	plugins := admission.NewPlugins()
	options.RegisterAllAdmissionPlugins(plugins)
	var file io.Reader
	if config != "" {
		file = bytes.NewBufferString(config)
	}
	var objects []runtime.Object
	for _, object := range world.Objects {
		objects = append(objects, object.DeepCopyObject())
	}
	client := fake.NewSimpleClientset(objects...) //nolint:staticcheck // NewClientset takes a second, for managed fields
	informers := informers.NewSharedInformerFactory(client, 0)
	quotas, err := install.NewQuotaConfigurationForAdmission(informers, nil)
	if err != nil {
		return nil, err
	}
	if world.Authorizer == nil {
		world.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	}
	plugin, err := plugins.InitPlugin(name, file, admission.PluginInitializers{
		initializer.New(client, nil, informers, world.Authorizer, utilfeature.DefaultFeatureGate, nil, ctx.Done(), restMapper()),
		kubeadmission.NewPluginInitializer(quotas, nil),
	})
	if err != nil {
		return nil, err
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if world.hasQuotas() {
		if err := awaitClasses(quotas.Evaluators(), &world); err != nil {
			return nil, err
		}
		return &quotaUpstream{upstream: &upstream{plugin}, client: client, lister: informers.Core().V1().ResourceQuotas().Lister()}, nil
	}
	return &upstream{plugin}, nil
}

// restMapper knows all that Kubernetes has.
func restMapper() meta.RESTMapper {
	return testrestmapper.TestOnlyStaticRESTMapper(legacyscheme.Scheme)
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
