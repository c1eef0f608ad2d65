// Package released is what the commands in this folder share. Each of them answers AdmissionReviews as the
// admission plugins of a release of Kubernetes do, with the feature gates that the release has by default. A command
// is a process of its own because no two releases of Kubernetes can be linked into one.
//
// A command has one argument, [Settings] as JSON. It reads JSON from standard input as package removed says: first
// the objects of the cluster, then AdmissionReviews with a member "phase". To the phase "reencode" it answers with
// [Reencoded], to "mutate" and "validate" with [Answer]. An object after a review is the first one of another
// cluster, with a plugin of its own. Package oracle starts it.
package released

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/api/testing" // installs all API groups
	kubeadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/fastadmit/fastadmit/e2e/removed"
)

// A Release has the functions whose signatures are not the same in all releases.
type Release struct {
	// Initializer returns the initializer of k8s.io/apiserver pkg/admission/initializer.
	Initializer func(kubernetes.Interface, dynamic.Interface, informers.SharedInformerFactory, authorizer.Authorizer,
		<-chan struct{}, meta.RESTMapper) admission.PluginInitializer
	// Client is that of package published.
	Client func(kubernetes.Interface, openapi.Client) kubernetes.Interface
	// Quotas is NewQuotaConfigurationForAdmission of k8s.io/kubernetes pkg/quota/v1/install.
	Quotas func(informers.SharedInformerFactory) (quota.Configuration, error)
	// ReadsClasses reports whether quotas depend on DeviceClasses, as they do with the feature gate DRAExtendedResource.
	ReadsClasses bool
	// Flags has kube-apiserver's flags for DefaultTolerationSeconds: a FlagSet of package flag or pflag.
	Flags interface {
		Set(name, value string) error
	}
	// Audit returns a context with an audit event, and a function that returns the annotations of the event.
	Audit func(context.Context) (ctx context.Context, annotations func() map[string]string)
}

// Settings say which plugin a command is, in which cluster.
type Settings struct {
	Plugin string
	// Config is the content of the plugin's configuration file, empty for none.
	Config string
	// Gate is a feature gate to switch on, empty for none.
	Gate string
	// NotReadySeconds and UnreachableSeconds are kube-apiserver's flags for DefaultTolerationSeconds.
	NotReadySeconds, UnreachableSeconds int64
	// Authorizer is the URL of an API server that answers SubjectAccessReviews; empty if all users have all
	// permissions.
	Authorizer string
	// OpenAPI is the folder with the OpenAPI v3 documents that the API server publishes, empty for none.
	OpenAPI string
}

// Reencoded has the objects of a review as an API server of the release sends them to a webhook, without the fields
// that the release does not know.
type Reencoded struct {
	// Served is false if the release does not serve the kind of the request.
	Served            bool
	Object, OldObject json.RawMessage
}

// An Answer is what the plugin answered.
type Answer struct {
	removed.Answer
	// Panicked is the value with which the plugin panicked, or why an API server cannot convert the object that
	// it made. It is empty otherwise.
	Panicked string
}

// Run is the main function of a command.
func Run(r Release) {
	utilruntime.ErrorHandlers = nil
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	c := &command{Release: r}
	if len(os.Args) != 2 {
		log.Fatalf("got %d arguments, want the settings", len(os.Args)-1)
	}
	if err := json.Unmarshal([]byte(os.Args[1]), &c.settings); err != nil {
		log.Fatalf("cannot read the settings %s: %v", os.Args[1], err)
	}
	if err := removed.Serve(c.know, c.answer); err != nil {
		log.Fatal(err)
	}
}

type command struct {
	Release
	settings Settings
	objects  []runtime.Object
	reviewed bool                // the cluster has all its objects
	plugin   admission.Interface // nil before its first review
	settled  func() error        // waits until the plugin can read what it has written
	ends     chan struct{}       // ends the plugin when it is closed
}

// know keeps an object of the cluster, unless the release has no such kind.
func (c *command) know(_ string, object []byte) error {
	if c.reviewed {
		if c.plugin != nil {
			close(c.ends)
		}
		c.reviewed, c.plugin, c.objects = false, nil, nil
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(object, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return nil
	}
	c.objects = append(c.objects, decoded)
	return err
}

// start starts the plugin as kube-apiserver does.
func (c *command) start() error {
	if c.settings.Gate != "" {
		if err := utilfeature.DefaultMutableFeatureGate.Set(c.settings.Gate + "=true"); err != nil {
			return err
		}
	}
	for name, seconds := range map[string]int64{
		"default-not-ready-toleration-seconds":   c.settings.NotReadySeconds,
		"default-unreachable-toleration-seconds": c.settings.UnreachableSeconds,
	} {
		if err := c.Flags.Set(name, fmt.Sprint(seconds)); err != nil {
			return err
		}
	}
	c.ends = make(chan struct{})
	plugins := admission.NewPlugins()
	options.RegisterAllAdmissionPlugins(plugins)
	server.RegisterAllAdmissionPlugins(plugins)
	var config io.Reader
	if c.settings.Config != "" {
		config = bytes.NewBufferString(c.settings.Config)
	}
	client := fake.NewSimpleClientset(c.objects...)
	client.PrependReactor("*", "*", Refuse)
	client.PrependReactor("update", "resourcequotas", Reformat)
	informers := informers.NewSharedInformerFactory(client, 0)
	quotas, err := c.Quotas(informers)
	if err != nil {
		return err
	}
	authorizes, err := c.authorizer()
	if err != nil {
		return err
	}
	publishing := c.Client(client, folder(c.settings.OpenAPI))
	c.plugin, err = plugins.InitPlugin(c.settings.Plugin, config, admission.PluginInitializers{
		c.Initializer(publishing, dynamicfake.NewSimpleDynamicClient(scheme.Scheme), informers, authorizes, c.ends, RESTMapper()),
		kubeadmission.NewPluginInitializer(quotas, exclusion.Excluded()),
	})
	if err != nil {
		return err
	}
	c.settled = func() error { return nil }
	if c.settings.Plugin == "ResourceQuota" {
		lister := informers.Core().V1().ResourceQuotas().Lister()
		c.settled = func() error { _, err := Quotas(client, lister); return err }
	}
	informers.Start(c.ends)
	informers.WaitForCacheSync(c.ends)
	if c.settings.Plugin == "ResourceQuota" && c.ReadsClasses {
		return AwaitClasses(quotas.Evaluators(), c.objects)
	}
	return c.awaitPlugin()
}

// awaitPlugin waits until the plugin is ready. A plugin that is not refuses requests after 10 s, which are not enough on
// every machine.
func (c *command) awaitPlugin() error {
	handler, ok := c.plugin.(interface{ WaitForReady() bool })
	for deadline := time.Now().Add(3 * time.Minute); ok && !handler.WaitForReady(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready", c.settings.Plugin)
		}
	}
	return nil
}

func (c *command) answer(r *admissionv1.AdmissionRequest, phase string) (any, error) {
	c.reviewed = true
	object, served, err := decode(r.Object.Raw, r.Kind)
	if err != nil {
		return nil, err
	}
	oldObject, _, err := decode(r.OldObject.Raw, r.Kind)
	if err != nil {
		return nil, err
	}
	if phase == "reencode" {
		return reencoded(object, oldObject, r.Kind, served)
	}
	if c.plugin == nil {
		if err := c.start(); err != nil {
			return nil, err
		}
	}
	options, err := optionsOf(r.Operation, r.Options.Raw)
	if err != nil {
		return nil, err
	}
	attributes := admission.NewAttributesRecord(object, oldObject, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), r.RequestSubResource, admission.Operation(r.Operation), options, *r.DryRun,
		userOf(r.UserInfo))
	var given warnings
	ctx, annotations := c.Audit(warning.WithWarningRecorder(context.Background(), &given))
	panicked, denial := c.ask(ctx, attributes, phase)
	if panicked != nil {
		return &Answer{Panicked: fmt.Sprint(panicked)}, nil
	}
	if err := c.settled(); err != nil {
		return nil, err
	}
	answer := &Answer{Answer: removed.Answer{Warnings: given, Annotations: annotations()}}
	if denial != nil {
		answer.Status = responsewriters.ErrorToAPIStatus(denial)
	} else if phase == "mutate" {
		if answer.After, err = encode(attributes.GetObject(), r.Kind); err != nil { // for example an annotation that should be a number
			return &Answer{Panicked: err.Error()}, nil
		}
	}
	return answer, nil
}

// ask asks the plugin. If it panics, an API server closes the connection of the request, and goes on.
func (c *command) ask(ctx context.Context, attributes admission.Attributes, phase string) (panicked any, denial error) {
	if !c.plugin.Handles(attributes.GetOperation()) {
		return nil, nil
	}
	defer func() { panicked = recover() }()
	interfaces := withoutDefaults{admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)}
	audited := admission.WithAudit(c.plugin) // does nothing in a phase that the plugin does not have
	if phase == "mutate" {
		return nil, c.admit(ctx, audited.(admission.MutationInterface), attributes, interfaces)
	}
	return nil, audited.(admission.ValidationInterface).Validate(ctx, attributes, interfaces)
}

// admit asks a plugin again if it wants that, as a chain of plugins does. It also asks again if the plugin does not know
// yet that there is a schema of the kind, because it reads the list of the schemas in the background.
func (c *command) admit(ctx context.Context, plugin admission.MutationInterface, a admission.Attributes,
	interfaces admission.ObjectInterfaces,
) error {
	err := plugin.Admit(ctx, a, interfaces)
	for deadline := time.Now().Add(time.Minute); apierrors.IsServiceUnavailable(err) &&
		folder(c.settings.OpenAPI).has(a.GetKind().Group, a.GetKind().Version) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Microsecond)
		err = plugin.Admit(ctx, a, interfaces)
	}
	if again := a.GetReinvocationContext(); err == nil && again.ShouldReinvoke() {
		again.SetIsReinvoke()
		err = plugin.Admit(ctx, a, interfaces)
	}
	return err
}

// withoutDefaults sets no defaults in what a plugin made. An API server also sets them in what a webhook made, but
// after its answer.
type withoutDefaults struct{ admission.ObjectInterfaces }

// GetObjectDefaulter implements admission.ObjectInterfaces.
func (withoutDefaults) GetObjectDefaulter() runtime.ObjectDefaulter { return new(runtime.Scheme) }

// warnings implements warning.Recorder.
type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

// decode returns an object in the API server's internal type. Objects of groups that no release has are custom
// resources.
func decode(raw []byte, kind metav1.GroupVersionKind) (object runtime.Object, served bool, err error) {
	gvk := schema.GroupVersionKind(kind)
	known := legacyscheme.Scheme.Recognizes(gvk)
	switch custom := !legacyscheme.Scheme.IsGroupRegistered(kind.Group); {
	case len(raw) == 0 || !known && !custom:
		return nil, known || custom, nil
	case custom:
		object := new(unstructured.Unstructured)
		return object, true, object.UnmarshalJSON(raw)
	}
	versioned, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw, &gvk, nil)
	if err != nil {
		return nil, true, err
	}
	object, err = legacyscheme.Scheme.UnsafeConvertToVersion(versioned, runtime.InternalGroupVersioner)
	return object, true, err
}

// encode encodes an internal object in the version that a webhook gets.
func encode(object runtime.Object, kind metav1.GroupVersionKind) (json.RawMessage, error) {
	if object == nil {
		return nil, nil
	}
	object = object.DeepCopyObject()
	if _, custom := object.(*unstructured.Unstructured); !custom {
		var err error
		version := schema.GroupVersion{Group: kind.Group, Version: kind.Version}
		if object, err = legacyscheme.Scheme.UnsafeConvertToVersion(object, version); err != nil {
			return nil, err
		}
	}
	s := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, legacyscheme.Scheme, legacyscheme.Scheme,
		serializer.SerializerOptions{})
	encoded, err := runtime.Encode(s, object)
	return bytes.TrimSpace(encoded), err
}

func reencoded(object, oldObject runtime.Object, kind metav1.GroupVersionKind, served bool) (all Reencoded, err error) {
	if all.Served = served; !served {
		return all, nil
	}
	if all.Object, err = encode(object, kind); err != nil {
		return all, err
	}
	all.OldObject, err = encode(oldObject, kind)
	return all, err
}

// optionsOf returns the options of an operation; nil for one without.
func optionsOf(operation admissionv1.Operation, raw []byte) (options runtime.Object, err error) {
	switch operation {
	case admissionv1.Create:
		options = new(metav1.CreateOptions)
	case admissionv1.Update:
		options = new(metav1.UpdateOptions)
	case admissionv1.Delete:
		options = new(metav1.DeleteOptions)
	}
	if options == nil || len(raw) == 0 {
		return nil, nil
	}
	return options, json.Unmarshal(raw, options)
}

func userOf(u authenticationv1.UserInfo) user.Info {
	all := &user.DefaultInfo{Name: u.Username, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if all.Extra == nil {
			all.Extra = make(map[string][]string)
		}
		all.Extra[key] = values
	}
	return all
}
