package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sort"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core"
	corescheme "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/label"

	"github.com/fastadmit/fastadmit/e2e/removed"
)

// A cloud knows the volumes of a provider.
type cloud struct {
	cloudprovider.Interface
	id     func(spec *corev1.PersistentVolumeSpec) string
	labels map[string]map[string]string // by id
}

// GetLabelsForVolume is the method that the plugin calls.
func (c *cloud) GetLabelsForVolume(_ context.Context, pv *corev1.PersistentVolume) (map[string]string, error) {
	labels, ok := c.labels[c.id(&pv.Spec)]
	if !ok {
		return nil, errors.New("the volume is not known")
	}
	return labels, nil
}

func register(config string) error {
	var table struct {
		Volumes []struct {
			Provider, ID string
			Labels       map[string]string
		}
	}
	if err := json.Unmarshal([]byte(config), &table); err != nil {
		return err
	}
	for name, id := range map[string]func(*corev1.PersistentVolumeSpec) string{
		"aws":     func(s *corev1.PersistentVolumeSpec) string { return s.AWSElasticBlockStore.VolumeID },
		"gce":     func(s *corev1.PersistentVolumeSpec) string { return s.GCEPersistentDisk.PDName },
		"azure":   func(s *corev1.PersistentVolumeSpec) string { return s.AzureDisk.DataDiskURI },
		"vsphere": func(s *corev1.PersistentVolumeSpec) string { return s.VsphereVolume.VolumePath },
	} {
		c := &cloud{id: id, labels: map[string]map[string]string{}}
		for _, v := range table.Volumes {
			if v.Provider == name {
				c.labels[v.ID] = v.Labels
			}
		}
		cloudprovider.RegisterCloudProvider(name, func(io.Reader) (cloudprovider.Interface, error) { return c, nil })
	}
	return nil
}

// runPersistentVolumeLabel writes what PersistentVolumeLabel did to each object. The table of volumes
// in the configuration of fastadmit's plugin, which is JSON, is the cloud.
func runPersistentVolumeLabel(config string) error {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if err := register(config); err != nil {
		return err
	}
	plugins := admission.NewPlugins()
	label.Register(plugins)
	plugin, err := plugins.InitPlugin(label.PluginName, nil, admission.PluginInitializers{})
	if err != nil {
		return err
	}
	return removed.Serve(nil, func(r *admissionv1.AdmissionRequest, phase string) (any, error) {
		return askPersistentVolumeLabel(plugin, r, phase)
	})
}

func askPersistentVolumeLabel(plugin admission.Interface, r *admissionv1.AdmissionRequest, phase string) (*removed.Answer, error) {
	if !plugin.Handles(admission.Operation(r.Operation)) || r.RequestKind.Kind != "PersistentVolume" || len(r.Object.Raw) == 0 ||
		phase != "mutate" {
		return &removed.Answer{}, nil
	}
	volume, internal := new(corev1.PersistentVolume), new(core.PersistentVolume)
	if err := json.Unmarshal(r.Object.Raw, volume); err != nil {
		return nil, err
	}
	if err := corescheme.Convert_v1_PersistentVolume_To_core_PersistentVolume(volume, internal, nil); err != nil {
		return nil, err
	}
	before, err := external(internal)
	if err != nil {
		return nil, err
	}
	if r.RequestSubResource != "" {
		return &removed.Answer{}, nil // no subresource is created
	}
	attributes := admission.NewAttributesRecord(internal, nil, schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), "", admission.Operation(r.Operation), nil, *r.DryRun, nil)
	if err := plugin.(admission.MutationInterface).Admit(context.Background(), attributes, nil); err != nil {
		return &removed.Answer{Status: responsewriters.ErrorToAPIStatus(err), Before: before}, nil
	}
	after, err := external(internal)
	if err != nil {
		return nil, err
	}
	order(before, after)
	return &removed.Answer{Before: before, After: after}, nil
}

func external(internal *core.PersistentVolume) (*corev1.PersistentVolume, error) {
	volume := new(corev1.PersistentVolume)
	return volume, corescheme.Convert_core_PersistentVolume_To_v1_PersistentVolume(internal.DeepCopy(), volume, nil)
}

// order sorts by key the expressions that the plugin added to each term. The plugin adds them in
// the random order of a Go map.
func order(before, after *corev1.PersistentVolume) {
	terms := func(v *corev1.PersistentVolume) []corev1.NodeSelectorTerm {
		if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
			return nil
		}
		return v.Spec.NodeAffinity.Required.NodeSelectorTerms
	}
	was := terms(before)
	for i, term := range terms(after) {
		added := term.MatchExpressions
		if i < len(was) {
			added = added[len(was[i].MatchExpressions):]
		}
		sort.Slice(added, func(i, j int) bool { return added[i].Key < added[j].Key })
	}
}
