package compile

import (
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

	"cuelang.org/go/cue"

	"github.com/sluice-xds/sluice/schema"
)

// decode fills a Go value from a node. The evaluator has checked the node
// against the schema, so what is left to go wrong is a number out of range; a
// field that the struct does not have is a mistake in this package.
func decode(n *node, into any) (ds schema.Diagnostics) {
	d := decoder{}
	d.value(n, reflect.ValueOf(into).Elem())
	return d.bad
}

type decoder struct{ bad schema.Diagnostics }

var durationType = reflect.TypeFor[time.Duration]()

func (d *decoder) value(n *node, v reflect.Value) {
	switch {
	case n.kind == cue.NullKind:
		return
	case v.Type() == durationType:
		dur, err := time.ParseDuration(n.text)
		d.check(n, err)
		v.SetInt(int64(dur))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem())
	case reflect.Struct:
		d.structure(n, v)
	case reflect.Map:
		v.Set(reflect.MakeMapWithSize(v.Type(), len(n.fields)))
		for _, f := range n.fields {
			e := reflect.New(v.Type().Elem()).Elem()
			d.value(f.value, e)
			v.SetMapIndex(reflect.ValueOf(f.name), e)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), len(n.elems), len(n.elems)))
		for i, e := range n.elems {
			d.value(e, v.Index(i))
		}
	default:
		d.scalar(n, v)
	}
}

func (d *decoder) structure(n *node, v reflect.Value) {
	names := fieldsOfType(v.Type())
	for _, f := range n.fields {
		if i, ok := names[f.name]; ok {
			d.value(f.value, v.Field(i))
		}
	}
	if at := v.FieldByName("At"); at.IsValid() {
		at.Set(reflect.ValueOf(n))
	}
}

func (d *decoder) scalar(n *node, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.text)
	case reflect.Bool:
		v.SetBool(n.text == "true")
	case reflect.Int:
		i, err := strconv.ParseInt(n.text, 10, 64)
		d.check(n, err)
		v.SetInt(i)
	case reflect.Uint32, reflect.Uint64:
		i, err := strconv.ParseUint(n.text, 10, v.Type().Bits())
		d.check(n, err)
		v.SetUint(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.text, 64)
		d.check(n, err)
		v.SetFloat(f)
	default:
		panic("compile: no decoding into " + v.Type().String())
	}
}

func (d *decoder) check(n *node, err error) {
	if err != nil {
		d.bad = append(d.bad, schema.Diagnostic{
			Pos: n.pos, Code: "range",
			Message: fmt.Sprintf("%s is out of range", n.text),
		})
	}
}

// fieldsOf lists the CUE fields of a struct.
func fieldsOf[T any]() map[string]int { return fieldsOfType(reflect.TypeFor[T]()) }

func fieldsOfType(t reflect.Type) map[string]int {
	if m, ok := fieldCache.Load(t); ok {
		return m.(map[string]int)
	}
	m := map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("cue"); name != "" {
			m[name] = i
		}
	}
	fieldCache.Store(t, m)
	return m
}

var fieldCache sync.Map // reflect.Type -> map[string]int
