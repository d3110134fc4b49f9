package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-xds/sluice/schema"
	"github.com/sluice-xds/sluice/schema/envoy"
)

// document is a DiscoveryResponse as JSON. Its control plane carries a seal over
// the rest, by which a file that somebody changed is told from one that was
// written here.
type document struct {
	Version      string            `json:"version_info"`
	TypeURL      string            `json:"type_url"`
	ControlPlane controlPlane      `json:"control_plane"`
	Resources    []json.RawMessage `json:"resources"`
}

type controlPlane struct {
	Identifier string `json:"identifier"`
}

const sealPrefix = "sluice sha256:"

func (d *document) seal() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", d.Version, d.TypeURL)
	for _, r := range d.Resources {
		var flat bytes.Buffer
		if err := json.Compact(&flat, r); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\n", flat.Bytes())
	}
	return sealPrefix + hex.EncodeToString(h.Sum(nil)), nil
}

// encode writes resources as a file.
func encode(t schema.Type, v schema.Version, resources []json.RawMessage) ([]byte, error) {
	d := document{Version: string(v), TypeURL: t.URL(), Resources: resources}
	if d.Resources == nil {
		d.Resources = []json.RawMessage{}
	}
	var err error
	if d.ControlPlane.Identifier, err = d.seal(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

var errEdited = errors.New("it is not as sluice wrote it: its seal does not fit its content")

// decode reads a file that encode wrote.
func decode(t schema.Type, data []byte) (*document, error) {
	d := &document{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(d); err != nil {
		return nil, fmt.Errorf("it is not as sluice wrote it: %w", err)
	}
	if d.TypeURL != t.URL() {
		return nil, fmt.Errorf("it is not as sluice wrote it: it holds a %s", d.TypeURL)
	}
	if seal, err := d.seal(); err != nil || seal != d.ControlPlane.Identifier || dec.More() {
		return nil, errEdited
	}
	return d, nil
}

// toFile is a resource as it stands in the files of a group: what it takes from
// this server it takes from the file of that.
func (g *Group) toFile(r *schema.Resource) (json.RawMessage, error) {
	msg, err := envoy.Unpack(r)
	if err != nil {
		return nil, err
	}
	err = envoy.Sources(msg, func(s envoy.Source) error {
		switch {
		case !s.Ours():
			return nil
		case !s.Known:
			return fmt.Errorf("%s is taken from this server, which files cannot stand for", s.Field)
		}
		s.ConfigSourceSpecifier = &corev3.ConfigSource_PathConfigSource{PathConfigSource: &corev3.PathConfigSource{Path: g.dir.as + "/" + g.place(s.Key)}}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write %s as a file: %w", r.Key, err)
	}
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, msg, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("cannot write %s as a file: %w", r.Key, err)
	}
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s as a file: %w", r.Key, err)
	}
	var flat bytes.Buffer // protojson varies its blanks on purpose
	err = json.Compact(&flat, data)
	return flat.Bytes(), err
}

// fromFile is the resource that toFile wrote.
func (g *Group) fromFile(t schema.Type, data json.RawMessage) (*schema.Resource, error) {
	msg, err := envoy.ParseJSON(t, data)
	if err != nil {
		return nil, err
	}
	err = envoy.Sources(msg, func(s envoy.Source) error {
		if s.Known && g.leadsTo(s.GetPathConfigSource().GetPath(), s.Key) {
			s.ConfigSourceSpecifier = &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return envoy.Resource(msg, envoy.NameOf(msg))
}
