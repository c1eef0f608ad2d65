package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

const (
	// renderedFlag is the flag for the manifests of the chart.
	renderedFlag = "rendered"
	// renderedBytesMax bounds the files that are written, each with a block of a disk: those of 16 ConfigMaps as large as kube-apiserver
	// takes. A container may mount one any number of times, and a volume may have a key of it at any number of paths.
	renderedBytesMax = 16 << 20
	blockBytes       = 4096
	// renderedMountsMax bounds the mounts, as each is compared with all volumes and all arguments.
	renderedMountsMax = 100
)

// rendered is the part of the chart's manifests that says what the pods run.
type rendered struct {
	configs map[string]*corev1.ConfigMap
	pod     *corev1.PodSpec // nil if no Deployment runs serve
	serve   *corev1.Container
}

// printRendered prints the configuration that the pods of the manifests would use. It writes the files of their ConfigMaps into a
// temporary folder for that, and says the paths in the pods.
func (o *serveOptions) printRendered(ctx context.Context, cmd *cobra.Command, file string) error {
	if cmd.Flags().NFlag() > 1 {
		return fmt.Errorf("--%s takes the flags of serve from the Deployment: got others too, want none", renderedFlag)
	}
	r, err := readRendered(file, cmd.InOrStdin())
	if err != nil {
		return of("--"+renderedFlag, failed(err))
	}
	dir, err := os.MkdirTemp("", "fastadmit-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	arguments, err := r.write(dir)
	if err != nil {
		return of("--"+renderedFlag, failed(err))
	}
	o.tree = files.Tree(dir) // the files of this machine are not those of the pod
	if err := cmd.Flags().Parse(arguments); err != nil {
		return explainFlag(cmd, err)
	}
	inPod := strings.NewReplacer( // the messages are about paths in the pod
		"the path, or a symbolic link in it, leads out of the folder \""+dir+"\"; want a file in this folder, and relative links; "+
			"--allow-files-outside allows others", "no ConfigMap of the manifests has this file", dir, "")
	var text bytes.Buffer
	if err := o.print(ctx, &text); err != nil {
		return failed(errors.New(inPod.Replace(err.Error())))
	}
	_, err = inPod.WriteString(cmd.OutOrStdout(), text.String())
	return failed(err)
}

// readRendered reads the Deployment that runs serve, and all ConfigMaps.
func readRendered(file string, stdin io.Reader) (*rendered, error) {
	r := &rendered{configs: make(map[string]*corev1.ConfigMap)}
	items := manifest.Read([]string{file}, stdin, files.Everywhere)
	for i := range items {
		item := &items[i]
		if item.Fault != nil {
			return nil, item.Fault
		}
		var err error
		switch gvk := item.GroupVersionKind(); gvk {
		case corev1.SchemeGroupVersion.WithKind("ConfigMap"):
			config := new(corev1.ConfigMap)
			err = yaml.Unmarshal(item.JSON, config)
			r.configs[config.Name] = config
		case appsv1.SchemeGroupVersion.WithKind("Deployment"):
			deployment := new(appsv1.Deployment)
			err = yaml.Unmarshal(item.JSON, deployment)
			r.find(&deployment.Spec.Template.Spec)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.Source, err)
		}
	}
	if r.pod == nil {
		return nil, fmt.Errorf("got no Deployment with a container that runs serve in %s, want what helm template prints for the chart", file)
	}
	return r, nil
}

// find looks for a container that runs serve.
func (r *rendered) find(pod *corev1.PodSpec) {
	for i := range pod.Containers {
		if c := &pod.Containers[i]; r.pod == nil && len(c.Args) > 0 && c.Args[0] == "serve" {
			r.pod, r.serve = pod, c
		}
	}
}

// write writes the files of the ConfigMaps that the container mounts below dir, and returns the arguments of serve for them.
// Paths cannot lead out of dir.
func (r *rendered) write(dir string) ([]string, error) {
	if got := len(r.serve.VolumeMounts); got > renderedMountsMax {
		return nil, fmt.Errorf("got %d volume mounts, want at most %d", got, renderedMountsMax)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // all files are written
	arguments, left := append([]string{}, r.serve.Args[1:]...), renderedBytesMax
	for i := range r.serve.VolumeMounts {
		mount := &r.serve.VolumeMounts[i]
		contents := r.contents(mount.Name)
		for name, text := range contents {
			if left -= len(text) + blockBytes; left < 0 {
				return nil, fmt.Errorf("got too many files of ConfigMaps, want at most %d bytes, with %d more for each file",
					renderedBytesMax, blockBytes)
			}
			name = strings.TrimPrefix(path.Join(mount.MountPath, name), "/")
			if err := errors.Join(root.MkdirAll(path.Dir(name), 0o700), root.WriteFile(name, []byte(text), 0o600)); err != nil {
				return nil, err
			}
		}
		if contents == nil {
			continue
		}
		for i := range arguments {
			arguments[i] = strings.Replace(arguments[i], "="+mount.MountPath, "="+dir+mount.MountPath, 1)
		}
	}
	return arguments, nil
}

// contents returns the files of a volume by path, nil if the manifests do not have them.
func (r *rendered) contents(volume string) map[string]string {
	for i := range r.pod.Volumes {
		source := r.pod.Volumes[i].ConfigMap
		if r.pod.Volumes[i].Name != volume || source == nil || r.configs[source.Name] == nil {
			continue
		}
		data := r.configs[source.Name].Data
		if source.Items == nil {
			return data
		}
		contents := make(map[string]string)
		for _, item := range source.Items {
			contents[item.Path] = data[item.Key]
		}
		return contents
	}
	return nil
}
